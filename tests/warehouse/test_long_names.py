"""Names that are longer than an engine allows: cut, with a hash of the whole path at the end, and never two alike."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.database import Database
from tests.warehouse.case import Contents, Delivery, Event, either_way, outcome
from tests.warehouse.running import run
from tests.warehouse.targets import DuckdbTarget, ModelTarget, PostgresTarget, Target

Target63 = tuple[Target, int]


@pytest.fixture(params=["model", "postgresql", "duckdb"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target63:
    """An engine, and the longest name that it takes."""
    if request.param == "postgresql":
        database: Database = request.getfixturevalue("database")
        return PostgresTarget(database), 63
    return (DuckdbTarget(tmp_path / "w.duckdb"), 255) if request.param == "duckdb" else (ModelTarget(), 63)


def loaded(target: Target, tmp_path: Path, *events: Event, **options: object) -> dict[str, Contents]:
    case = either_way("long", events, outcome(), options=options)
    result = run(case, Delivery.STREAM, target, tmp_path / "stage")
    assert result.loaded == len(events)
    return target.look()


def names(there: dict[str, Contents]) -> list[str]:
    return list(there["events"].columns)


def test_a_name_of_just_the_length_is_not_cut(target: Target63, tmp_path: Path) -> None:
    engine, longest = target
    assert names(loaded(engine, tmp_path, {"x" * longest: 1})) == ["x" * longest]


def test_a_longer_name_is_cut_and_ends_in_eight_digits_of_a_hash(target: Target63, tmp_path: Path) -> None:
    engine, longest = target
    (name,) = names(loaded(engine, tmp_path, {"x" * (longest + 1): 1}))
    assert len(name) == longest
    assert re.fullmatch(r"x+_?[0-9a-f]{8}", name)


def test_two_long_names_that_begin_alike_stay_two_and_the_same_in_every_batch(target: Target63, tmp_path: Path) -> None:
    engine, longest = target
    one, other = "x" * longest + "one", "x" * longest + "other"
    there = loaded(engine, tmp_path, {one: 1, other: 2}, {other: 4, one: 3}, {one: 5})
    first, second = names(there)
    assert first != second
    assert list(there["events"].rows) == [{first: 1, second: 2}, {first: 3, second: 4}, {first: 5}]


def test_long_names_that_differ_only_in_what_is_cleaned_away_stay_two(target: Target63, tmp_path: Path) -> None:
    """The hash is that of the path as it was sent."""
    engine, longest = target
    there = loaded(engine, tmp_path, {"x" * longest + "-a": 1, "x" * longest + " a": 2})
    assert len(names(there)) == 2


def test_the_length_is_that_of_the_name_not_of_its_bytes(target: Target63, tmp_path: Path) -> None:
    engine, longest = target
    assert names(loaded(engine, tmp_path, {"ü" * longest: 1})) == ["_" * longest]


def test_two_hundred_levels_make_one_column(target: Target63, tmp_path: Path) -> None:
    engine, longest = target
    there = loaded(engine, tmp_path, b'{"a":' * 200 + b"1" + b"}" * 200)
    (name,) = names(there)
    assert len(name) == longest
    assert list(there["events"].rows) == [{name: 1}]


def test_long_tables_stay_apart_too(target: Target63, tmp_path: Path) -> None:
    engine, longest = target
    there = loaded(
        engine,
        tmp_path,
        {"t": "x" * longest + "one"},
        {"t": "x" * longest + "other"},
        table="{{ t }}",
        primary_key=["t"],
    )
    assert [len(name) for name in there] == [longest, longest]
    assert [len(contents.rows) for contents in there.values()] == [1, 1]
