"""What a user finds in ClickHouse after batches were loaded, from the embedded engine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock import faults
from penstock.destinations.clickhouse.config import ClickhouseConfig
from penstock.destinations.clickhouse.destination import ClickhouseDestination
from penstock.destinations.sql.load import row_pieces
from penstock.destinations.sql.marks import KEPT_MARKS
from penstock.errors import ContradictionError, PenstockError, TransientError
from penstock.testing.destination import batch, delivered_rows, events, numbered
from tests.destinations.clickhouse.conftest import Engine, Warehouse
from tests.support.ports import free_port

Make = Callable[..., Warehouse]


# Tables and columns


def test_a_table_is_made_with_the_types_of_its_values(engine: Engine, warehouse: Make) -> None:
    warehouse().load({"a": {"b": 1}, "d": "x", "e": 1.5, "f": True, "g": [1], "_timestamp": "2024-05-01T10:00:00Z"})
    assert engine.columns() == {
        "a_b": "Nullable(Int64)", "d": "Nullable(String)", "e": "Nullable(Float64)", "f": "Nullable(UInt8)",
        "g": "Nullable(String)", "_timestamp": "Nullable(DateTime64(6, 'UTC'))",
    }  # fmt: skip
    assert engine.ask("SELECT a_b, d, e, f, g, toString(_timestamp) FROM events") == [
        (1, "x", 1.5, 1, "[1]", "2024-05-01 10:00:00.000000")
    ]


def test_new_fields_become_new_columns_and_old_ones_stay(engine: Engine, warehouse: Make) -> None:
    target = warehouse()
    target.load({"a": 1})
    target.load({"b": "x"})
    assert engine.ask("SELECT a, b FROM events ORDER BY a") == [(1, None), (None, "x")]


def test_columns_of_the_owner_are_left_alone_whatever_their_case(engine: Engine, warehouse: Make) -> None:
    engine.do(
        "CREATE TABLE events (UserID Int64, note String DEFAULT 'new', twice Int64 MATERIALIZED UserID * 2)"
        " ENGINE = MergeTree ORDER BY UserID"
    )
    warehouse().load({"userId": 7})
    assert engine.ask("SELECT UserID, note, twice FROM events") == [(7, "new", 14)]


@pytest.mark.parametrize(
    ("cast", "kind", "given", "stored"),
    [
        ("LowCardinality(String)", "LowCardinality(Nullable(String))", "x", "x"),
        ("LowCardinality(String)", "LowCardinality(Nullable(String))", 5, "5"),
        ("Int32", "Nullable(Int32)", 5, "5"),
        ("Nullable(UInt16)", "Nullable(UInt16)", 65_535, "65535"),
        ("UUID", "Nullable(UUID)", "61f0c404-5cb3-11e7-907b-a6006ad3dba0", "61f0c404-5cb3-11e7-907b-a6006ad3dba0"),
        ("IPv4", "Nullable(IPv4)", "1.2.3.4", "1.2.3.4"),
        ("Date32", "Nullable(Date32)", "2024-05-01", "2024-05-01"),
        ("DateTime('Europe/Berlin')", "Nullable(DateTime('Europe/Berlin'))", "2024-05-01T10:00:00Z",
         "2024-05-01 12:00:00"),
        ("DateTime64(3,'UTC')", "Nullable(DateTime64(3, 'UTC'))", "2024-05-01T10:00:00.125Z",
         "2024-05-01 10:00:00.125"),
        ("numeric(12,2)", "Nullable(Decimal(12, 2))", 1.5, "1.5"),
        ("bigint", "Nullable(Int64)", "7", "7"),
        ("boolean", "Nullable(UInt8)", True, "1"),
        ("timestamptz", "Nullable(DateTime64(6, 'UTC'))", "2024-05-01T10:00:00Z", "2024-05-01 10:00:00.000000"),
        ("FixedString(3)", "Nullable(FixedString(3))", "abc", "abc"),
    ],
)  # fmt: skip
def test_a_cast_decides_the_type_of_its_column(
    engine: Engine, warehouse: Make, cast: str, kind: str, given: Any, stored: str
) -> None:
    receipt = warehouse({"/v": cast}).load({"id": 1, "v": given}, {"id": 2})
    assert receipt.failures == []
    assert engine.columns()["v"] == kind
    assert engine.ask("SELECT toString(v) FROM events ORDER BY id") == [(stored,), (None,)]


@pytest.mark.parametrize(
    "asked",
    ["Int64) ENGINE = Null; --", "Array(String)", "NoSuchType", "DateTime('UTC'); DROP TABLE x", "Nullable(Nullable)"],
)
def test_a_cast_to_what_is_no_type_takes_no_records(warehouse: Make, asked: str) -> None:
    with pytest.raises(PenstockError, match="PEN-DST-020"):
        warehouse({"/a": asked}).load({"a": 1})


@pytest.mark.parametrize("name", ["select", "final", "tuple", "1", "_part", "x" * 127, "x" * 128])
def test_names_that_mean_something_to_the_engine_are_names_like_others(
    engine: Engine, warehouse: Make, name: str
) -> None:
    warehouse(table="{{ kind }}").load({"kind": name, name: 5})
    ((table,),) = engine.ask(
        f"SELECT name FROM system.tables WHERE database = '{engine.database}' AND name NOT LIKE '\\_penstock\\_%'"
    )
    column = next(column for column in engine.columns(table) if column != "kind")
    assert (table, len(table)) == (column, min(127, len(name)))
    assert engine.ask(f"SELECT `{column}` FROM `{table}`") == [(5,)]


def test_a_frozen_table_gets_no_columns_but_the_one_for_the_rest(engine: Engine, warehouse: Make) -> None:
    warehouse().load({"a": 1})
    target = warehouse(schema="freeze")
    target.number = 1
    target.load({"a": 2, "b": {"c": [1]}})
    assert engine.columns() == {"a": "Nullable(Int64)", "_unmapped": "Nullable(String)"}
    assert engine.ask("SELECT a, _unmapped FROM events WHERE a = 2") == [(2, '{"b_c":[1]}')]


def test_fields_beyond_the_most_columns_are_kept_aside(engine: Engine, warehouse: Make) -> None:
    warehouse(max_columns=2).load({"a": 1, "b": 2, "c": 3})
    assert engine.ask("SELECT a, b, _unmapped FROM events") == [(1, 2, '{"c":3}')]


# Values that their column cannot take


def test_a_value_of_another_type_is_kept_aside_and_the_row_loads(engine: Engine, warehouse: Make) -> None:
    target = warehouse()
    target.load({"id": 1, "a": 1, "b": True})
    target.load({"id": 2, "a": "x", "b": 200}, {"id": 3, "a": "7", "b": 256}, {"id": 4, "b": -1})
    found = engine.ask("SELECT a, b, _unmapped FROM events ORDER BY id")
    assert [(a, b, json.loads(kept) if kept else None) for a, b, kept in found] == [
        (1, 1, None), (None, 200, {"a": "x"}), (7, None, {"b": 256}), (None, None, {"b": -1})
    ]  # fmt: skip


@pytest.mark.parametrize("value", [-1, 256, 1.5, "x", "-0", 2**63])
def test_numbers_never_wrap_around(engine: Engine, warehouse: Make, value: Any) -> None:
    engine.do("CREATE TABLE events (small Nullable(UInt8)) ENGINE = MergeTree ORDER BY tuple()")
    warehouse().load({"small": value})
    ((small, kept),) = engine.ask("SELECT small, _unmapped FROM events")
    assert small is None
    assert json.loads(kept)["small"] in (value, str(value))


def test_text_that_clickhouse_cannot_read_fails_its_row_and_is_not_made_null(engine: Engine, warehouse: Make) -> None:
    target = warehouse({"/ip": "IPv4"})
    receipt = target.load({"id": 1, "ip": "1.2.3.4"}, {"id": 2, "ip": "nowhere"}, {"id": 3}, first=10)
    (failures,) = receipt.failures
    assert failures.column("offset").to_pylist() == [11]
    assert "Pv4" in failures.column("message")[0].as_py()
    assert engine.ask("SELECT id, toString(ip) FROM events ORDER BY id") == [(1, "1.2.3.4"), (3, None)]


def test_a_time_that_its_column_does_not_reach_fails_its_row(engine: Engine, warehouse: Make) -> None:
    engine.do("CREATE TABLE events (id Int64, at Nullable(DateTime('UTC'))) ENGINE = MergeTree ORDER BY id")
    receipt = warehouse().load({"id": 1, "at": "2500-01-01T00:00:00Z"}, {"id": 2, "at": "2024-05-01T10:00:00Z"})
    assert [failures.column("offset").to_pylist() for failures in receipt.failures] == [[0]]
    assert engine.ask("SELECT id, toString(at) FROM events") == [(2, "2024-05-01 10:00:00")]


@pytest.mark.parametrize(
    ("first", "then", "kind", "stored"),
    [
        (True, 7, "Nullable(Int64)", [1, 7]),
        (True, 700, "Nullable(Int64)", [1, 700]),
        (True, 1.5, "Nullable(Float64)", [1.0, 1.5]),
        (1, 1.5, "Nullable(Float64)", [1.0, 1.5]),
        (1, "x", "Nullable(String)", ["1", "x"]),
        (1.5, "x", "Nullable(String)", ["1.5", "x"]),
        (True, "x", "Nullable(UInt8)", [1, None]),
    ],
)
def test_a_column_is_widened_where_clickhouse_can(
    engine: Engine, warehouse: Make, first: Any, then: Any, kind: str, stored: list[Any]
) -> None:
    target = warehouse(on_type_conflict="widen")
    target.load({"id": 1, "v": first})
    target.load({"id": 2, "v": then})
    # Seven has room in a boolean's byte.
    assert engine.columns()["v"] == ("Nullable(UInt8)" if then == 7 else kind)
    assert [row[0] for row in engine.ask("SELECT v FROM events ORDER BY id")] == stored


def test_a_conflict_fails_its_row_if_asked_to(engine: Engine, warehouse: Make) -> None:
    target = warehouse(on_type_conflict="fail")
    target.load({"a": 1})
    receipt = target.load({"a": "x"}, {"a": 2})
    assert [failures.column("code").to_pylist() for failures in receipt.failures] == [["type_conflict"]]
    assert engine.ask("SELECT a FROM events ORDER BY a") == [(1,), (2,)]


NASTY = [
    "x\0y",
    "'); DROP TABLE events; --",
    "\\n\\",
    "日本語 \u2028 \U0001f600",
    '{"a":"\\u0000"}',
    "",
    "\\N",
    "x" * 1_000_000,
]


@pytest.mark.parametrize("key", [(), ("id",)], ids=["plain", "merged"])
def test_text_is_stored_as_it_is(engine: Engine, warehouse: Make, key: tuple[str, ...]) -> None:
    warehouse(primary_key=key).load(*({"id": number, "v": value} for number, value in enumerate(NASTY)))
    assert [row[0] for row in engine.ask("SELECT v FROM events ORDER BY id")] == NASTY


# Keys


def final(engine: Engine, columns: str = "*") -> list[tuple[Any, ...]]:
    return engine.ask(f"SELECT {columns} FROM events FINAL ORDER BY 1")


def test_a_key_is_what_the_table_is_sorted_by(engine: Engine, warehouse: Make) -> None:
    warehouse(primary_key=["id", "day"]).load({"v": 1, "day": "mon", "id": 7})
    assert engine.columns() == {"v": "Nullable(Int64)", "day": "String", "id": "Int64"}
    found = f"SELECT engine, sorting_key FROM system.tables WHERE database = '{engine.database}' AND name = 'events'"
    assert engine.ask(found) == [("ReplacingMergeTree", "id, day")]


def test_a_record_updates_its_row_and_keeps_what_it_does_not_carry(engine: Engine, warehouse: Make) -> None:
    target = warehouse(primary_key=["id"])
    target.load({"id": 1, "a": 1, "b": "x"}, {"id": 2, "a": 5})
    target.load({"id": 1, "a": 2}, {"id": 3, "c": True})
    target.load({"id": 1, "b": "y"}, {"id": 1, "a": 3})
    assert final(engine, "id, a, b, c") == [(1, 3, "y", None), (2, 5, None, None), (3, None, None, 1)]


def test_a_value_that_goes_back_to_what_it_was_is_written(engine: Engine, warehouse: Make) -> None:
    target = warehouse(primary_key=["id"])
    for value in ("on", "off", "on"):
        target.load({"id": 1, "state": value})
    assert final(engine) == [(1, "on")]


def test_a_time_that_is_finer_than_its_column_is_kept_aside(engine: Engine, warehouse: Make) -> None:
    engine.ask("CREATE TABLE events (at Nullable(DateTime64(3, 'UTC'))) ENGINE = MergeTree ORDER BY tuple()")
    target = warehouse(infer_timestamps=True)
    target.load({"at": "2024-05-01T10:00:00.123000Z"}, {"at": "2024-05-01T10:00:00.123456Z"})
    found = engine.ask("SELECT toString(at), _unmapped FROM events ORDER BY at NULLS LAST")
    assert found == [("2024-05-01 10:00:00.123", None), (None, '{"at":"2024-05-01T10:00:00.123456Z"}')]


def test_an_older_version_changes_nothing(engine: Engine, warehouse: Make) -> None:
    target = warehouse(primary_key=["id"], version_column="v")
    target.load({"id": 1, "v": 5, "a": "new"}, {"id": 2, "a": "none"})
    target.load({"id": 1, "v": 4, "a": "old", "b": "old"}, {"id": 2, "v": 1, "a": "first"})
    target.load({"id": 1, "v": 5, "a": "same"}, {"id": 2, "a": "no version"})
    assert final(engine, "id, v, a, b") == [(1, 5, "same", None), (2, 1, "first", None)]


def test_what_is_older_than_the_tables_row_says_nothing_beside_what_is_newer(engine: Engine, warehouse: Make) -> None:
    target = warehouse(primary_key=["id"], version_column="v")
    target.load({"id": 1, "v": 5, "a": 1, "b": 1}, {"id": 2, "v": 1, "a": 1, "b": 1}, {"id": 3, "b": 1})
    target.load(
        *({"id": 1, "v": 3, "b": 9}, {"id": 1, "v": 7, "a": 2}),
        *({"id": 2, "v": 3, "b": 9}, {"id": 2, "v": 7, "a": 2}),
        *({"id": 3, "b": 9}, {"id": 3, "v": 1, "a": 2}),
        *({"id": 4, "b": 9}, {"id": 4, "v": 1, "a": 2}),
        {"id": 5, "v": 1},
    )
    assert final(engine, "id, v, a, b") == [(1, 7, 2, 1), (2, 7, 2, 9), (3, 1, 2, 9), (4, 1, 2, 9), (5, 1, None, None)]


def test_what_is_kept_aside_is_kept_by_field(engine: Engine, warehouse: Make) -> None:
    target = warehouse(primary_key=["id"])
    target.load({"id": 1, "a": 1, "b": 1, "c": 1})
    target.load({"id": 1, "a": "x"})
    target.load({"id": 1, "b": 0.1234567890123456789})
    assert final(engine, "id, a, b, c, _unmapped") == [(1, None, None, 1, '{"a":"x","b":0.12345678901234568}')]
    target.load({"id": 1, "b": [1.5, None], "c": "y"})
    target.load({"id": 1, "c": 2})
    ((a, b, c, kept),) = final(engine, "a, b, c, _unmapped")
    assert (a, b, c) == (None, None, 2)
    assert json.loads(kept) == {"a": "x", "b": [1.5, None]}
    target.load({"id": 1, "a": 5, "b": 6})
    assert final(engine, "id, a, b, c, _unmapped") == [(1, 5, 6, 2, None)]


@pytest.mark.parametrize("kind", ["String", "UUID", "LowCardinality(String)", "Date32"])
def test_a_key_may_be_of_many_types(engine: Engine, warehouse: Make, kind: str) -> None:
    value = {"UUID": "61f0c404-5cb3-11e7-907b-a6006ad3dba0", "Date32": "2024-05-01"}.get(kind, "k")
    target = warehouse({"/k": kind}, primary_key=["k"])
    target.load({"k": value, "a": 1, "b": 1})
    target.load({"k": value, "b": 2})
    assert final(engine, "toString(k), a, b") == [(value, 1, 2)]


def test_a_row_without_its_key_fails(engine: Engine, warehouse: Make) -> None:
    receipt = warehouse(primary_key=["id"]).load({"id": 1}, {"other": 2})
    assert [failures.column("code").to_pylist() for failures in receipt.failures] == [["no_key"]]
    assert final(engine, "id") == [(1,)]


def test_a_table_of_the_owner_is_merged_by_its_own_key(engine: Engine, warehouse: Make) -> None:
    engine.do(
        "CREATE TABLE events (id Int64, Seen Int64 DEFAULT 9, a Nullable(String))"
        " ENGINE = ReplacingMergeTree ORDER BY id"
    )
    target = warehouse()
    target.load({"id": 1, "a": "x"})
    target.load({"id": 1, "seen": 5})
    assert final(engine) == [(1, 5, "x")]


@pytest.mark.parametrize(("before", "after"), [([], ["id"]), (["id"], ["a"]), (["id"], [])])
def test_a_key_that_clickhouse_cannot_change_is_said(warehouse: Make, before: list[str], after: list[str]) -> None:
    warehouse(primary_key=before).load({"id": 1, "a": 1})
    target = warehouse(primary_key=after)
    target.number = 1
    with pytest.raises(PenstockError, match=r"PEN-DST-040: the table 'events' has"):
        target.load({"id": 2, "a": 1})


# Delivery


def test_a_load_that_was_cut_short_inserts_only_what_is_missing(
    engine: Engine, warehouse: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_pieces, "ROWS", 3)
    target = warehouse()
    parts = target.staging.stage(numbered(range(10)))
    destination = target.destination
    monkeypatch.setattr(faults, "_armed", faults.parse("destination.piece@2=raise"))
    with pytest.raises(faults.InjectedFault):
        destination.write(batch(), parts)
    assert engine.ask("SELECT count() FROM events") == [(6,)]
    # Staged anew, in other files: the pieces are the same.
    halves = target.staging.stage(numbered(range(4))) + target.staging.stage(numbered(range(4, 10)), first=4)
    assert delivered_rows(destination.write(batch(), halves)) == 10
    assert engine.ask("SELECT id FROM events ORDER BY id") == [(number,) for number in range(10)]


def test_equal_rows_of_different_batches_are_all_there(engine: Engine, warehouse: Make) -> None:
    target = warehouse({"/ip": "IPv4"})
    for _ in range(3):
        target.load({"a": 1, "ip": "1.2.3.4"}, {"a": 1, "ip": "1.2.3.4"})
    assert engine.ask("SELECT count() FROM events") == [(6,)]


@pytest.mark.parametrize("casts", [{}, {"/ip": "IPv4"}], ids=["straight", "by way of another table"])
@pytest.mark.parametrize("key", [(), ("id",)], ids=["plain", "merged"])
def test_a_batch_without_its_mark_is_known_by_its_rows(
    engine: Engine, warehouse: Make, casts: dict[str, str], key: tuple[str, ...]
) -> None:
    target = warehouse(casts, primary_key=key)
    parts = target.staging.stage(events({"id": 1, "ip": "1.2.3.4"}, {"id": 2}))
    target.destination.write(batch(), parts)
    engine.do("TRUNCATE TABLE _penstock_loads")
    assert not target.destination.write(batch(), parts).repeated
    assert engine.ask("SELECT id FROM events FINAL ORDER BY id" if key else "SELECT id FROM events ORDER BY id") == [
        (1,), (2,)
    ]  # fmt: skip


def test_a_batch_with_its_mark_says_so_and_names_its_failures_again(warehouse: Make) -> None:
    target = warehouse({"/ip": "IPv4"})
    parts = target.staging.stage(events({"ip": "nowhere"}, {"ip": "1.2.3.4"}), first=5)
    first, second = (target.destination.write(batch(), parts) for _ in range(2))
    assert (first.repeated, second.repeated) == (False, True)
    assert [found.to_pylist() for found in second.failures] == [found.to_pylist() for found in first.failures]


def test_another_batch_of_the_same_number_is_not_taken_for_it(engine: Engine, warehouse: Make) -> None:
    target = warehouse()
    first, second = replace(batch(), origin="one"), replace(batch(), origin="other")
    target.destination.write(first, target.staging.stage(numbered([1])))
    with pytest.raises(ContradictionError, match="PEN-DST-110"):
        target.destination.write(second, target.staging.stage(numbered([2])))
    assert engine.ask("SELECT id FROM events") == [(1,)]
    assert [load.batch.origin for load in target.destination.newest_loads()] == ["one"]


def test_marks_of_an_older_release_are_believed_by_their_number(engine: Engine, warehouse: Make) -> None:
    target = warehouse()
    target.destination.write(batch(0), target.staging.stage(numbered([1])))
    engine.do("ALTER TABLE _penstock_loads DROP COLUMN origin")
    assert [load.batch.origin for load in target.destination.newest_loads()] == [""]
    assert target.destination.write(replace(batch(0), origin="one"), target.staging.stage(numbered([1]))).repeated
    assert not target.destination.write(replace(batch(1), origin="two"), target.staging.stage(numbered([2]))).repeated
    assert [load.batch.origin for load in target.destination.loads("ledger-a", "shop")] == ["", "two"]


def test_only_the_newest_marks_are_kept(engine: Engine, warehouse: Make) -> None:
    target = warehouse()
    for number in (0, 1, KEPT_MARKS, KEPT_MARKS + 1):
        target.destination.write(batch(number), target.staging.stage(numbered([number])))
    engine.do("OPTIMIZE TABLE _penstock_loads FINAL")
    marks = engine.ask("SELECT batch FROM _penstock_loads ORDER BY batch")
    assert marks == [(KEPT_MARKS,), (KEPT_MARKS + 1,)]


@pytest.mark.parametrize("key", [(), ("id",)], ids=["plain", "merged"])
def test_one_poison_row_among_many_fails_alone_with_the_engines_words(
    engine: Engine, warehouse: Make, key: tuple[str, ...]
) -> None:
    engine.do(
        "CREATE TABLE events (id Int64, v Int64, CONSTRAINT small CHECK v < 1000) ENGINE = "
        + ("ReplacingMergeTree" if key else "MergeTree")
        + " ORDER BY id SETTINGS non_replicated_deduplication_window = 100"
    )
    rows = [{"id": number, "v": 5_000 if number == 77 else number} for number in range(200)]
    receipt = warehouse(primary_key=key).load(*rows)
    (failures,) = receipt.failures
    assert failures.column("offset").to_pylist() == [77]
    assert "Constraint `small`" in failures.column("message")[0].as_py()
    assert engine.ask("SELECT count(), uniqExact(id), max(v) FROM events") == [(199, 199, 199)]
    left = f"SELECT name FROM system.tables WHERE database = '{engine.database}' ORDER BY name"
    assert engine.ask(left) == [("_penstock_loads",), ("events",)]


def test_what_killed_loads_left_behind_is_swept_away(
    engine: Engine, warehouse: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.do("CREATE TABLE _penstock_waiting_old (a Int64) ENGINE = Memory")
    target = warehouse(primary_key=["id"])
    target.load({"id": 1})
    left = f"SELECT count() FROM system.tables WHERE database = '{engine.database}' AND name LIKE '%waiting%'"
    assert engine.ask(left) == [(1,)], "it may belong to a load that still runs"
    from penstock.destinations.clickhouse import session

    monkeypatch.setattr(session, "KEPT_FOR", "-1 SECOND")
    target.load({"id": 2})
    assert engine.ask(left) == [(0,)]


# The server


def test_a_database_that_is_missing_is_made(engine: Engine, warehouse: Make) -> None:
    database = f'{engine.database} "more" \\'
    warehouse(database=database).load({"a": 1})
    quoted = database.replace("\\", "\\\\").replace('"', '\\"')
    assert engine.ask(f'SELECT a FROM "{quoted}".events') == [(1,)]
    engine.do(f'DROP DATABASE "{quoted}"')


def test_a_server_that_is_away_is_tried_again_and_its_password_is_not_told(warehouse: Make) -> None:
    parts = warehouse().staging.stage(numbered([1]))
    config = ClickhouseConfig.model_validate({"url": f"clickhouse://me:secret@127.0.0.1:{free_port()}"})
    away = ClickhouseDestination(config)
    started = time.monotonic()
    with pytest.raises(TransientError, match="PEN-DST-041") as caught:
        away.write(batch(), parts)
    assert "secret" not in str(caught.value)
    with pytest.raises(PenstockError, match="PEN-DST-041"):
        away.check()
    assert time.monotonic() - started < 30


def test_the_plan_is_what_would_be_done(engine: Engine, warehouse: Make) -> None:
    target = warehouse(primary_key=["id"])
    (statement,) = target.destination.plan(target.staging.stage(events({"id": 1, "a": "x"})))
    assert statement == (
        f'CREATE TABLE IF NOT EXISTS "{engine.database}"."events" ("id" Int64, "a" Nullable(String))'
        " ENGINE = ReplacingMergeTree ORDER BY (\"id\") COMMENT 'events_penstock_key'"
    )
    assert engine.columns() == {}


@pytest.mark.parametrize("url", ["", "localhost:8123", "postgresql://x", "clickhouse:/x"])
def test_an_address_that_is_none_is_refused_with_the_config(url: str) -> None:
    with pytest.raises(ValueError, match="not a ClickHouse address"):
        ClickhouseConfig.model_validate({"url": url})


@pytest.mark.parametrize("option", ["password=zebra", "user=ada"])
def test_an_option_of_the_url_that_the_driver_does_not_know_is_said_with_the_way_to_write_it(option: str) -> None:
    config = ClickhouseConfig.model_validate({"type": "clickhouse", "url": f"clickhouse://u@127.0.0.1:1/db?{option}"})
    with pytest.raises(PenstockError, match="PEN-DST-045") as caught:
        ClickhouseDestination(config).check()
    assert "zebra" not in str(caught.value)
