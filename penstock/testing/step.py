"""What every Arrow step owes: of each row in, one row out, or a reason."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.items import number_items
from penstock.outcome import FAILURE_SCHEMA, Outcome
from penstock.record import RECORD_SCHEMA, Mode, Op, Record, entries, placed
from penstock.registry import Kind, component
from penstock.steps.contract import ArrowStep

KEYS = st.sampled_from(["a", "b", "c", "id", "user", "name", "price", "x.y", "é", 'q"', ""])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
    | st.sampled_from(["1", "1.5", " 7 ", "true", "DE"])
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)
OBJECTS: st.SearchStrategy[Any] = st.dictionaries(KEYS, VALUES, max_size=6)


def as_json(value: Any, spaced: bool, ascii_only: bool) -> bytes:
    separators = (" , ", " : ") if spaced else (",", ":")
    return json.dumps(value, separators=separators, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


DOCUMENTS = st.builds(as_json, OBJECTS, st.booleans(), st.booleans())
ANY_DATA = DOCUMENTS | st.builds(as_json, VALUES, st.booleans(), st.booleans()) | st.binary(max_size=20) | st.none()


def batch_of(*data: bytes | None, partition: int = 3, first_offset: int = 100) -> pa.RecordBatch:
    """Records with these data, at consecutive places."""
    rows = [Record(some, namespace="shop", op=Op.INSERT, mode=Mode.SYNC, headers={"token": "site"}) for some in data]
    return placed(entries(rows), partition, first_offset)


def kept(outcome: Outcome) -> list[bytes]:
    """The data of the rows that go on."""
    data: list[bytes] = outcome.kept.column("data").to_pylist()
    return data


def failed(outcome: Outcome) -> list[tuple[int, str]]:
    """Offset and code of every failure."""
    return [(row["offset"], row["code"]) for row in outcome.failures.to_pylist()]


class StepContract:
    """For every ``ArrowStep``.

    Gives: ``name``, ``configs``; the other attributes where the step differs.
    Asserted: every row comes out in one place (kept, skipped, failed), in order, the same way every time and in any
    company; it changes one column at most and leaves its input alone; what is no JSON object fails with the code
    ``not_json`` and never raises; a pickled copy does the same. Beside fixed cases, hypothesis makes the data up.
    """

    name: ClassVar[str]
    """The step's name in the registry."""
    configs: ClassVar[Sequence[Any]]
    """Some ways to configure it, as YAML would give them."""
    reads_data: ClassVar[bool] = True
    """Whether it looks into the data; a step that does not lets pass what is no JSON."""
    changes: ClassVar[str | None] = "data"
    """The column that it may change."""
    adds: ClassVar[bool] = False
    """Whether it may make several rows of one."""

    def steps(self) -> list[ArrowStep[Any]]:
        card = component(Kind.STEP, self.name)
        return [card.implementation_class()(card.config_class().model_validate(config)) for config in self.configs]

    def check(self, step: ArrowStep[Any], batch: pa.RecordBatch) -> Outcome:
        """Apply a step and see that its outcome is a lawful one."""
        outcome = step.apply(batch)
        outcome.kept.validate(full=True)
        outcome.failures.validate(full=True)
        assert outcome.kept.schema == batch.schema
        assert outcome.failures.schema == FAILURE_SCHEMA
        assert outcome.skipped >= 0
        rows_out = outcome.kept.num_rows + outcome.skipped + outcome.failures.num_rows
        assert rows_out == batch.num_rows + outcome.added
        assert outcome.added == 0 or (self.adds and outcome.added > 0)

        before = batch.column("offset").to_pylist()
        places = outcome.kept.column("offset").to_pylist()
        going_on = [offset for offset, _ in itertools.groupby(places)] if self.adds else places
        failing = outcome.failures.column("offset").to_pylist()
        assert going_on == [offset for offset in before if offset in set(going_on)], "rows changed their order"
        assert len({*going_on, *failing}) == len(going_on) + len(failing), "a row came out twice"
        assert {*going_on, *failing} <= set(before), "a row was invented"
        assert set(outcome.failures.column("partition").to_pylist()) <= set(batch.column("partition").to_pylist())
        for row in outcome.failures.to_pylist():
            assert row["code"].isidentifier()
            assert row["message"]
        # Whoever makes several rows of one may number them; if not, the chain does.
        chosen = number_items(batch.take(pa.array([before.index(offset) for offset in places], pa.int64())))
        rows = number_items(outcome.kept)
        for column in RECORD_SCHEMA.names:
            if column != self.changes:
                assert rows.column(column).equals(chosen.column(column)), f"{column} was changed"
        if self.reads_data:
            for data in kept(outcome):
                json.loads(data)
        return outcome

    def test_an_empty_batch_stays_empty(self) -> None:
        for step in self.steps():
            assert self.check(step, batch_of()) == Outcome(batch_of())

    @pytest.mark.parametrize(
        "data",
        [
            None, b"", b" ", b"null", b"7", b'"text"', b"[{}]", b"{", b'{"a":', b'{"a":1', b'{"a":1}}', b'{"a":1,}',
            b"{'a':1}", b'{"a":01}', b'{"a":nan}', b'{"a":"\xff"}', b"\x00\x01", b'{"a":1}{"a":2}', b'{"a" 1}',
        ],
    )  # fmt: skip
    def test_data_that_is_no_json_object_fails_and_the_rest_goes_on(self, data: bytes | None) -> None:
        for step in self.steps():
            alone = self.check(step, batch_of(b"{}"))
            outcome = self.check(step, batch_of(data, b"{}", data))
            if not self.reads_data:
                assert outcome.failures.num_rows == 0
                continue
            assert failed(outcome)[:1] == [(100, "not_json")]
            assert (102, "not_json") in failed(outcome)
            assert kept(outcome) == kept(alone)
            assert outcome.skipped == alone.skipped

    def test_a_batch_of_nothing_but_nulls_fails_as_a_whole(self) -> None:
        for step in self.steps():
            failures = self.check(step, batch_of(None, None, None)).failures
            assert failures.num_rows == (3 if self.reads_data else 0)

    def test_whatever_comes_is_accounted_for(self) -> None:
        steps = self.steps()

        # Defined here and not as the test itself: a subclass must not share its examples with its siblings.
        @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(st.lists(ANY_DATA, max_size=6))
        def holds(data: list[bytes | None]) -> None:
            for step in steps:
                self.check(step, batch_of(*data))

        holds()

    def test_a_record_fares_the_same_in_any_company(self) -> None:
        steps = self.steps()

        @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(st.lists(ANY_DATA, min_size=1, max_size=6))
        def holds(data: list[bytes | None]) -> None:
            batch = batch_of(*data)
            for step in steps:
                together, again = step.apply(batch), step.apply(batch)
                assert together == again
                alone = [step.apply(batch.slice(row, 1)) for row in range(batch.num_rows)]
                assert kept(together) == [some for outcome in alone for some in kept(outcome)]
                assert together.skipped == sum(outcome.skipped for outcome in alone)
                assert sorted(failed(together)) == sorted(some for outcome in alone for some in failed(outcome))

        holds()

    def test_it_travels_to_another_process(self) -> None:
        batch = batch_of(b'{"a":1,"b":{"c":2.50}}', b"{}", None)
        for step in self.steps():
            copy = pickle.loads(pickle.dumps(step))
            assert copy.apply(batch) == step.apply(batch)
            assert copy.casts == step.casts

    def test_it_reads_its_batch_and_leaves_it_alone(self) -> None:
        batch = batch_of(b'{"a":1,"b":{"c":2.50}}', b'{"a":null}', b"[]")
        before = batch.to_pylist()
        for step in self.steps():
            step.apply(batch)
            assert batch.to_pylist() == before
