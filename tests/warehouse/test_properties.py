"""Any events at all: nothing crashes, nothing is lost, and everything is counted once."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.flatten.column_naming import column_name
from penstock.json.paths import format_path
from tests.warehouse.case import Case, Contents, Delivery, Event, Options, either_way, outcome
from tests.warehouse.running import Run, data_of, readable, run
from tests.warehouse.targets import DuckdbTarget, ModelTarget, Target

KEYS = st.sampled_from(
    ["a", "A", "b", "a_b", "a b", "_unmapped", "", "ctid", "é", "\0", "\\u0000", "_timestamp", "x" * 70]
) | st.text(max_size=3)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.sampled_from(
    ["7", "007", "1.5", "true", "x\0y", "2024-05-01T10:00:00Z", "2024-05-01T10:00:00.5+02:00", "[1]", "{}"]
)
NUMBERS = (
    st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0, 1, 1.0, 7, 1e30, 1e-30, 2**53 + 1])
)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=5)
RAW = st.sampled_from([b"", b"[1]", b"{", b'{"a":1e400}', b'{"a":"\\ud800"}', b'{"a":1,"a":2}', b'{"a":-1e-400}'])
EVENTS = st.lists(DOCUMENTS | RAW, min_size=1, max_size=5)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "on_type_conflict": st.sampled_from(["unmapped", "widen", "fail"]),
        "schema": st.sampled_from(["evolve", "freeze"]),
        "max_columns": st.integers(1, 6),
        "infer_timestamps": st.booleans(),
        "table": st.sampled_from(["events", "{{ a }}"]),
    },
)
KEYED = st.fixed_dictionaries({"primary_key": st.just(["a"])}, optional={"version_column": st.just("b")})
DELIVERIES = st.sampled_from([Delivery.STREAM, Delivery.BATCH])
QUIET = settings(suppress_health_check=list(HealthCheck), max_examples=100)


def delivered(events: list[Event], options: Options, delivery: Delivery, target: Target, frame: int = 10_000) -> Run:
    """``run`` itself checks that loaded + skipped + failed is the number of events."""
    case: Case = either_way("any", events, outcome(), options=options)
    with tempfile.TemporaryDirectory() as folder:
        return run(case, delivery, target, Path(folder), frame)


@given(EVENTS, OPTIONS | KEYED, DELIVERIES, st.sampled_from([1, 10_000]))
@QUIET
def test_nothing_crashes_and_every_event_is_counted_once(
    events: list[Event], options: Options, delivery: Delivery, frame: int
) -> None:
    delivered(events, options, delivery, ModelTarget(), frame)


@given(st.lists(DOCUMENTS, min_size=1, max_size=5), OPTIONS.filter(lambda found: "table" not in found), DELIVERIES)
@QUIET
def test_every_leaf_is_in_its_column_or_kept_aside(
    documents: list[Event], options: Options, delivery: Delivery
) -> None:
    target = ModelTarget()
    result = delivered(documents, options, delivery, target)
    check_leaves(documents, result, target)


@given(st.lists(DOCUMENTS, min_size=1, max_size=3), DELIVERIES)
@settings(suppress_health_check=list(HealthCheck), max_examples=20)
def test_the_same_on_duckdb(documents: list[Event], delivery: Delivery) -> None:
    with tempfile.TemporaryDirectory() as folder:
        target = DuckdbTarget(Path(folder) / "w.duckdb")
        result = delivered(documents, {}, delivery, target)
        check_leaves(documents, result, target, max_name=255, takes_nul=True)


def check_leaves(
    documents: list[Event], result: Run, target: Target, max_name: int = 63, takes_nul: bool = False
) -> None:
    there = target.look().get("events", Contents({}, []))
    rows = [readable(row) for row in there.rows]
    filled = [
        leaves
        for number, document in enumerate(documents)
        if number not in result.failed and (leaves := dict(leaves_of(json.loads(data_of(document)))))
    ]
    assert len(rows) == len(filled)
    paths = result.book.paths.get("events", {})
    for row, leaves in zip(rows, filled, strict=True):
        aside = row.get("_unmapped", {})
        assert isinstance(aside, dict)
        places: list[str] = []
        for path in leaves:
            name, shown = column_name(path, max_name), shown_path(path)
            if name in row and name != "_unmapped" and shown in paths[name] and name not in places:
                places.append(name)
            else:
                kept = shown if takes_nul else shown.replace("\0", "\\u0000")
                while kept in places:
                    kept += "#"
                assert name in aside or kept in aside, (
                    f"{shown} is nowhere in {row}: {documents}, {result.book.statements}"
                )
                places.append(name if name in aside and name not in places else kept)
        # As many places as leaves, and nothing that nobody sent.
        assert len(set(places)) == len(leaves)
        assert len(row) - ("_unmapped" in row) + len(aside) == len(leaves)


def leaves_of(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """The values that an event must not lose, by path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves_of(inner, (*path, key))
    elif value is not None:
        yield path, value


def shown_path(path: tuple[str, ...]) -> str:
    return format_path(path)


@pytest.mark.parametrize("delivery", [Delivery.STREAM, Delivery.BATCH])
def test_the_check_sees_a_leaf_that_is_lost(delivery: Delivery) -> None:
    target = ModelTarget()
    documents: list[Event] = [{"a": 1, "b": {"c": "x"}}]
    result = delivered(documents, {}, delivery, target)
    check_leaves(documents, result, target)
    del target.store.tables["events"].rows[0]["b_c"]
    with pytest.raises(AssertionError, match="/b/c is nowhere"):
        check_leaves(documents, result, target)
