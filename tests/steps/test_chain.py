"""The chain: namespaces, malformed records, and the sum that must come out."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.config.component import StepConfig
from penstock.errors import RouteError
from penstock.record import Record, entries, placed
from penstock.steps.chain import Chain, Link
from penstock.steps.contract import FAILURE_SCHEMA, ArrowStep, Outcome, namespace_pattern


class Upper(ArrowStep[StepConfig]):
    """Changes every row it is given, so that a test sees which ones it was given."""

    def apply(self, batch: pa.RecordBatch) -> Outcome:
        data = pc.cast(pc.utf8_upper(pc.cast(batch.column("data"), pa.string())), pa.binary())
        return Outcome(batch.set_column(batch.schema.get_field_index("data"), batch.schema.field("data"), data))


class DropB(ArrowStep[StepConfig]):
    """Skips ``b`` and fails ``c``."""

    def apply(self, batch: pa.RecordBatch) -> Outcome:
        data = pc.cast(batch.column("data"), pa.string())
        failing = batch.filter(pc.equal(data, "c"))
        texts = [pa.array([text] * failing.num_rows, pa.string()) for text in ("bad", "c is not allowed")]
        failures = pa.RecordBatch.from_arrays(
            [failing.column("partition"), failing.column("offset"), *texts], schema=FAILURE_SCHEMA
        )
        kept = batch.filter(pc.invert(pc.is_in(data, pa.array(["b", "c"]))))
        return Outcome(kept, batch.num_rows - kept.num_rows - failing.num_rows, failures)


class Loses(ArrowStep[StepConfig]):
    def apply(self, batch: pa.RecordBatch) -> Outcome:
        return Outcome(batch.slice(1))


def batch(*rows: tuple[str, str], headers: dict[str, str] | None = None) -> pa.RecordBatch:
    records = [Record(data.encode(), namespace=namespace, headers=headers or {}) for namespace, data in rows]
    return placed(entries(records), partition=3, first_offset=100)


def values(result: pa.RecordBatch) -> list[str]:
    return [value.decode() for value in result.column("data").to_pylist()]


def test_a_step_touches_only_its_namespaces_and_order_is_kept() -> None:
    link = Link("upper", Upper(StepConfig()), namespace_pattern("/^orders/"))
    out = Chain([link]).run(batch(("orders", "a"), ("users", "b"), ("orders.eu", "c"), ("users", "d")))
    assert values(out.kept) == ["A", "b", "C", "d"]
    assert out.kept.column("offset").to_pylist() == [100, 101, 102, 103]


def test_a_route_skips_and_counts_what_its_namespace_does_not_match() -> None:
    out = Chain([], namespace_pattern("orders")).run(batch(("orders", "a"), ("users", "b"), ("my orders", "c")))
    assert values(out.kept) == ["a", "c"]
    assert out.skipped == {"namespace": 1}


def test_a_namespace_that_matches_nothing_skips_everything() -> None:
    out = Chain([Link("upper", Upper(StepConfig()))], namespace_pattern("nowhere")).run(batch(("orders", "a")))
    assert out.kept.num_rows == 0
    assert out.skipped == {"namespace": 1}


def test_skips_and_failures_are_counted_under_the_step_that_made_them() -> None:
    chain = Chain([Link("upper", Upper(StepConfig()), namespace_pattern("users")), Link("drop", DropB(StepConfig()))])
    out = chain.run(batch(("orders", "a"), ("orders", "b"), ("orders", "c"), ("users", "b")))
    assert values(out.kept) == ["a", "B"]
    assert out.skipped == {"drop": 1}
    (failures,) = out.failures
    assert failures.to_pylist() == [
        {"partition": 3, "offset": 102, "code": "bad", "message": "c is not allowed", "step": "drop"}
    ]


def test_a_record_that_its_source_could_not_read_fails_before_the_first_step() -> None:
    good, bad = batch(("web", "a")), batch(("web", "torn"), headers={"malformed": "line 3: not JSON"})
    both = pa.concat_batches([good, bad])
    out = Chain([Link("upper", Upper(StepConfig()))]).run(both)
    assert values(out.kept) == ["A"]
    assert [(f["step"], f["code"], f["message"]) for f in out.failures[0].to_pylist()] == [
        ("source", "malformed", "line 3: not JSON")
    ]


@pytest.mark.parametrize("pattern", [None, namespace_pattern("orders")])
def test_a_step_that_loses_a_record_is_caught(pattern: object) -> None:
    link = Link("loses", Loses(StepConfig()), pattern)  # type: ignore[arg-type]
    with pytest.raises(RouteError, match="given 2 records and accounts for 1"):
        Chain([link]).run(batch(("orders", "a"), ("orders", "b")))


@pytest.mark.parametrize(
    ("text", "matches"), [("/.*/", True), (".*", True), ("/^a$/", False), ("a", True), ("b", False)]
)
def test_namespaces_are_unanchored_expressions_with_optional_slashes(text: str, matches: bool) -> None:
    assert bool(namespace_pattern(text).search("xay")) is matches


def test_a_bad_namespace_says_what_is_wrong_with_it() -> None:
    with pytest.raises(ValueError, match="not a regular expression"):
        namespace_pattern("/(/")
