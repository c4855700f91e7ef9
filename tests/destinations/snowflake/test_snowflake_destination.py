"""What a user finds in Snowflake after batches were loaded, as far as ``fakesnow`` can tell."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from penstock.destinations.snowflake import session
from penstock.destinations.snowflake.config import SnowflakeConfig
from penstock.destinations.sql.load import row_pieces
from penstock.destinations.sql.marks import KEPT_MARKS
from penstock.errors import PenstockError, TransientError
from penstock.testing.destination import batch, delivered_rows, events, numbered
from tests.destinations.snowflake.conftest import LOGIN, Account, Warehouse

Make = Callable[..., Warehouse]


# Tables and columns


@pytest.mark.parametrize(("floats", "kind"), [("numeric", "NUMBER(38,18)"), ("double", "FLOAT")])
def test_a_table_is_made_with_the_types_of_its_values(
    account: Account, warehouse: Make, floats: str, kind: str
) -> None:
    time = "2024-05-01T10:00:00.000001Z"
    target = warehouse(float=floats)
    target.load({"a": {"b": 2**62}, "d": "x", "e": 1.5, "f": True, "g": [1], "_timestamp": time})
    assert account.columns() == {
        "A_B": "NUMBER(38,0)", "D": "TEXT", "E": kind, "F": "BOOLEAN", "G": "TEXT", "_TIMESTAMP": "TIMESTAMP_TZ"
    }  # fmt: skip
    ((whole, text, number, flag, array, at),) = account.ask("select a_b, d, e, f, g, _timestamp from events")
    assert (whole, text, number, flag, array) == (2**62, "x", Decimal("1.5") if kind != "FLOAT" else 1.5, True, "[1]")
    assert at.isoformat() == "2024-05-01T10:00:00.000001+00:00"


def test_new_fields_become_new_columns_and_old_ones_stay(account: Account, warehouse: Make) -> None:
    target = warehouse()
    target.load({"a": 1})
    target.load({"b": "x"})
    assert account.ask("SELECT a, b FROM events") == [(1, None), (None, "x")]


def test_columns_of_the_owner_are_left_alone_whatever_their_case(account: Account, warehouse: Make) -> None:
    account.ask("CREATE TABLE events (\"UserID\" BIGINT, note TEXT DEFAULT 'new')")
    warehouse().load({"userId": 7})
    assert account.ask("SELECT * FROM events") == [(7, "new")]


def test_a_cast_decides_the_type_of_its_column(account: Account, warehouse: Make) -> None:
    casts = {"/price": "numeric(12,2)", "/day": "date", "/raw": "variant", "/time": "timestamp_ntz", "/n": "integer"}
    target = warehouse(casts)
    target.load({"price": 1.5, "day": "2024-05-01", "raw": [1, {"a": 2}], "time": "2024-05-01T10:00:00+02:00", "n": 7})
    assert account.columns() == {
        "PRICE": "NUMBER(12,2)", "DAY": "DATE", "RAW": "VARIANT", "TIME": "TIMESTAMP_NTZ", "N": "NUMBER(38,0)"
    }  # fmt: skip
    assert account.ask("SELECT price, day::text, raw[1]:a::int, n FROM events") == [
        (Decimal("1.50"), "2024-05-01", 2, 7)
    ]
    ((time,),) = account.ask('SELECT "TIME" FROM events')
    assert time.isoformat() == "2024-05-01T08:00:00"


def test_text_stays_text_in_a_variant(account: Account, warehouse: Make) -> None:
    warehouse({"/raw": "variant"}).load({"raw": "7"}, {"raw": "true"}, {"raw": "null"}, {"raw": "x"})
    found = [json.loads(row[0]) for row in account.ask("SELECT raw FROM events")]
    assert found == ["7", "true", "null", "x"]


@pytest.mark.parametrize("asked", ["int); DROP TABLE events; --", "number(", "a'b"])
def test_a_cast_to_what_is_no_type_takes_no_records(warehouse: Make, asked: str) -> None:
    with pytest.raises(PenstockError, match="PEN-DST-020"):
        warehouse({"/a": asked}).load({"a": 1})


@pytest.mark.parametrize("name", ["select", "s", "t", "1", "_penstock_x", "x" * 255, "x" * 256])
def test_names_that_mean_something_are_names_like_others(account: Account, warehouse: Make, name: str) -> None:
    target = warehouse(table="t_{{ kind }}", primary_key=["kind"])
    target.load({"kind": name[:50], name: 5})
    target.load({"kind": name[:50], name: 6})
    column = next(column for column in account.columns(f"T_{name[:50].upper()}") if column != "KIND")
    assert len(column) == min(255, len(name))
    assert account.ask(f'SELECT "{column}" FROM "T_{name[:50].upper()}"') == [(6,)]


def test_a_frozen_table_gets_no_columns_but_the_one_for_the_rest(account: Account, warehouse: Make) -> None:
    warehouse().load({"a": 1})
    target = warehouse(schema="freeze")
    target.number = 1
    target.load({"a": 2, "b": {"c": [1]}})
    assert account.columns() == {"A": "NUMBER(38,0)", "_UNMAPPED": "VARIANT"}
    assert account.ask("SELECT _unmapped:b_c[0]::int FROM events WHERE a = 2") == [(1,)]


def test_fields_beyond_the_most_columns_are_kept_aside(account: Account, warehouse: Make) -> None:
    warehouse(max_columns=2).load({"a": 1, "b": 2, "c": "x"})
    assert account.ask("SELECT a, b, _unmapped:c::text FROM events") == [(1, 2, "x")]


# Values that their column cannot take


@pytest.mark.parametrize("conflict", ["unmapped", "widen"])
def test_a_value_of_another_type_is_kept_aside_and_the_row_loads(
    account: Account, warehouse: Make, conflict: str
) -> None:
    target = warehouse(on_type_conflict=conflict)
    target.load({"id": 1, "a": 1, "b": True})
    target.load({"id": 2, "a": "x", "b": 1}, {"id": 3, "a": "7", "b": 2}, {"id": 4, "a": 9.0})
    found = account.ask("SELECT a, b, _unmapped FROM events ORDER BY id")
    assert [(a, b, json.loads(kept) if kept else None) for a, b, kept in found] == [
        (1, True, None), (None, True, {"a": "x"}), (7, None, {"b": 2}), (9, None, None)
    ]  # fmt: skip
    assert account.columns()["A"] == "NUMBER(38,0)"


def test_a_number_that_the_decimal_cannot_hold_is_kept_aside(account: Account, warehouse: Make) -> None:
    warehouse().load({"id": 1, "v": 1.5}, {"id": 2, "v": 1e30}, {"id": 3, "v": -0.1})
    found = account.ask("SELECT v, _unmapped:v FROM events ORDER BY id")
    assert [value for value, _ in found] == [Decimal("1.5"), None, Decimal("-0.1")]
    assert float(found[1][1]) == 1e30


def test_a_conflict_fails_its_row_if_asked_to(account: Account, warehouse: Make) -> None:
    target = warehouse(on_type_conflict="fail")
    target.load({"a": 1})
    receipt = target.load({"a": "x"}, {"a": 2})
    assert [failures.column("code").to_pylist() for failures in receipt.failures] == [["type_conflict"]]
    assert account.ask("SELECT a FROM events ORDER BY a") == [(1,), (2,)]


NASTY = [
    "x\0y", "'); DROP TABLE events; --", "\\n\\", "日本語 \u2028 \U0001f600", '{"a":"\\u0000"}', "", "\\N", "%s",
    "x" * 1_000_000,
]  # fmt: skip


@pytest.mark.parametrize("key", [(), ("id",)], ids=["plain", "merged"])
def test_text_is_stored_as_it_is(account: Account, warehouse: Make, key: tuple[str, ...]) -> None:
    warehouse(primary_key=key).load(*({"id": number, "v": value} for number, value in enumerate(NASTY)))
    assert [row[0] for row in account.ask("SELECT v FROM events ORDER BY id")] == NASTY


def test_one_poison_row_among_many_fails_alone_with_the_engines_words(account: Account, warehouse: Make) -> None:
    account.ask("CREATE TABLE events (id BIGINT, clock TIME)")
    rows = [{"id": number, "clock": "99:99:99" if number == 77 else "10:00:00"} for number in range(200)]
    receipt = warehouse().load(*rows)
    (failures,) = receipt.failures
    assert failures.column("offset").to_pylist() == [77]
    assert "99:99:99" in failures.column("message")[0].as_py()
    assert account.ask("SELECT COUNT(*), COUNT(DISTINCT id) FROM events") == [(199, 199)]


# Keys


def test_a_record_updates_its_row_and_keeps_what_it_does_not_carry(account: Account, warehouse: Make) -> None:
    target = warehouse(primary_key=["id"])
    target.load({"id": 1, "a": 1, "b": "x"}, {"id": 2, "a": 5})
    target.load({"id": 1, "a": 2}, {"id": 3, "c": True})
    target.load({"id": 1, "b": "y"}, {"id": 1, "a": 3})
    assert account.ask("SELECT id, a, b, c FROM events ORDER BY id") == [
        (1, 3, "y", None), (2, 5, None, None), (3, None, None, True)
    ]  # fmt: skip
    assert [row[4] for row in account.ask("SHOW PRIMARY KEYS IN TABLE events")] == ["ID"]


def test_five_equal_records_are_one_row(account: Account, warehouse: Make) -> None:
    target = warehouse(primary_key=["id", "day"])
    target.load(*[{"id": 1, "day": "mon"}] * 5)
    target.load(*[{"id": 1, "day": "mon"}] * 5)
    assert account.ask("SELECT id, day FROM events") == [(1, "mon")]


def test_an_older_version_changes_nothing(account: Account, warehouse: Make) -> None:
    target = warehouse(primary_key=["id"], version_column="v")
    target.load({"id": 1, "v": 5, "a": "new"}, {"id": 2, "a": "none"})
    target.load({"id": 1, "v": 4, "a": "old", "b": "old"}, {"id": 2, "v": 1, "a": "first"})
    target.load({"id": 1, "v": 5, "a": "same"}, {"id": 2, "a": "no version"})
    assert account.ask("SELECT id, v, a, b FROM events ORDER BY id") == [(1, 5, "same", None), (2, 1, "first", None)]


def test_what_is_older_than_the_tables_row_says_nothing_beside_what_is_newer(account: Account, warehouse: Make) -> None:
    target = warehouse(primary_key=["id"], version_column="v")
    target.load({"id": 1, "v": 5, "a": 1, "b": 1}, {"id": 2, "v": 1, "a": 1, "b": 1}, {"id": 3, "b": 1})
    target.load(
        *({"id": 1, "v": 3, "b": 9}, {"id": 1, "v": 7, "a": 2}),
        *({"id": 2, "v": 3, "b": 9}, {"id": 2, "v": 7, "a": 2}),
        *({"id": 3, "b": 9}, {"id": 3, "v": 1, "a": 2}),
        *({"id": 4, "b": 9}, {"id": 4, "v": 1, "a": 2}),
        {"id": 5, "v": 1},
    )
    assert account.ask("SELECT id, v, a, b FROM events ORDER BY id") == [
        (1, 7, 2, 1),
        (2, 7, 2, 9),
        (3, 1, 2, 9),
        (4, 1, 2, 9),
        (5, 1, None, None),
    ]


def test_a_value_that_does_not_fit_empties_its_column(account: Account, warehouse: Make) -> None:
    target = warehouse(primary_key=["id"])
    target.load({"id": 1, "a": 1, "b": 1}, {"id": 2, "a": 1})
    target.load({"id": 1, "a": "x"}, {"id": 2, "b": 2})
    found = account.ask("SELECT id, a, b, _unmapped:a::text FROM events ORDER BY id")
    assert found == [(1, None, 1, "x"), (2, 1, 2, None)]


def test_a_row_without_its_key_fails(account: Account, warehouse: Make) -> None:
    receipt = warehouse(primary_key=["id"]).load({"id": 1}, {"other": 2})
    assert [failures.column("code").to_pylist() for failures in receipt.failures] == [["no_key"]]
    assert account.ask("SELECT id FROM events") == [(1,)]


# Delivery


def test_many_files_are_one_load(account: Account, warehouse: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.destinations.snowflake import stage_files

    monkeypatch.setattr(row_pieces, "ROWS", 3)
    monkeypatch.setattr(stage_files, "FILE_BYTES", 1)
    warehouse().load(*({"id": number} for number in range(20)))
    assert account.ask("SELECT COUNT(*), COUNT(DISTINCT id) FROM events") == [(20, 20)]


def test_failures_are_named_again_however_many_they_are(
    account: Account, warehouse: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_TEXT_AT_A_TIME", 50)
    target = warehouse(on_type_conflict="fail")
    target.load({"a": 1})
    parts = target.staging.stage(events(*({"a": "it's"} for _ in range(30)), {"a": 5}))
    first, second = (target.destination.write(batch(1), parts) for _ in range(2))
    assert (first.repeated, second.repeated, delivered_rows(second)) == (False, True, 31)
    assert [found.to_pylist() for found in second.failures] == [found.to_pylist() for found in first.failures]
    assert account.ask("SELECT a FROM events ORDER BY a") == [(1,), (5,)]


def test_only_the_newest_marks_are_kept(account: Account, warehouse: Make) -> None:
    target = warehouse()
    for number in (0, 1, KEPT_MARKS, KEPT_MARKS + 1):
        target.destination.write(batch(number), target.staging.stage(numbered([number])))
    marks = account.ask("SELECT batch FROM _penstock_loads ORDER BY batch")
    assert marks == [(KEPT_MARKS,), (KEPT_MARKS + 1,)]


def test_a_schema_that_is_missing_is_made(account: Account, warehouse: Make) -> None:
    warehouse(database_schema="raw").load({"a": 1})
    assert account.ask("SELECT a FROM shop.raw.events") == [(1,)]


def test_the_plan_is_what_would_be_done(account: Account, warehouse: Make) -> None:
    target = warehouse(primary_key=["id"])
    (statement,) = target.destination.plan(target.staging.stage(events({"id": 1, "a": "x"})))
    assert statement == (
        'CREATE TABLE IF NOT EXISTS "SHOP"."PUBLIC"."EVENTS" ("ID" NUMBER(38,0), "A" TEXT,'
        ' CONSTRAINT "EVENTS_PENSTOCK_KEY" PRIMARY KEY ("ID"))'
    )
    assert account.columns() == {}


@pytest.mark.parametrize(
    "options",
    [{"password": None}, {"private_key_path": "/key.pem"}, {"account": ""}, {"database": ""}],
    ids=["no secret", "two secrets", "no account", "no database"],
)
def test_options_that_cannot_work_are_refused_with_the_config(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"password and private_key_path|at least 1 character"):
        SnowflakeConfig.model_validate({**LOGIN, **options})


def test_an_account_that_is_away_is_tried_again(warehouse: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    import snowflake.connector
    from snowflake.connector.errors import OperationalError

    def away(**options: Any) -> None:
        assert options["login_timeout"] == 30
        raise OperationalError(msg="250001: Could not connect to Snowflake backend", errno=250001)

    target = warehouse()
    parts = target.staging.stage(numbered([1]))
    monkeypatch.setattr(snowflake.connector, "connect", away)
    with pytest.raises(TransientError, match=r"PEN-DST-043: Snowflake says: .*Could not connect"):
        target.destination.write(batch(), parts)
    with pytest.raises(PenstockError, match="PEN-DST-043"):
        target.destination.check()
