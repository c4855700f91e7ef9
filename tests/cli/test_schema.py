"""``penstock schema show``, ``diff``, ``remap`` and ``log``: tables as the ledger and the target know them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.warehouses import Warehouse, duckdb_warehouse, postgres_warehouse
from tests.support.duckdb_file import open_file
from tests.support.postgres import postgres

Ask = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture(params=["duckdb", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Warehouse, Ask]:
    """A warehouse, and a way to ask its database."""
    if request.param == "duckdb":

        def ask_duckdb(query: str) -> list[tuple[Any, ...]]:
            with open_file(tmp_path / "warehouse.duckdb") as connection:
                return connection.execute(query).fetchall()

        return duckdb_warehouse(tmp_path), ask_duckdb
    dsn: str = request.getfixturevalue("postgres_url")
    schema = f"t{uuid.uuid4().hex[:12]}"

    def ask_postgres(query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(dsn, autocommit=True, options=f"-c search_path={schema}") as connection:
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []

    return postgres_warehouse(tmp_path, dsn, schema), ask_postgres


@pytest.fixture
def shop(target: tuple[Warehouse, Ask]) -> Warehouse:
    return target[0]


@pytest.fixture
def ask(target: tuple[Warehouse, Ask]) -> Ask:
    return target[1]


# show and log


def test_columns_are_shown_with_their_paths_and_types(shop: Warehouse) -> None:
    shop.deliver({"id": 1, "user": {"Name": "ada"}}, {"id": 2, "User": {"name": "bob"}})
    (found,) = shop.json("schema", "show")
    assert (found["route"], found["table"]) == ("warehouse", "events")
    columns = {column["name"]: column for column in found["columns"]}
    assert list(columns) == ["id", "user_name"]
    assert columns["user_name"]["paths"] == ["/user/Name", "/User/name"]
    assert {name: column["type"].lower() for name, column in columns.items()} in (
        {"id": "bigint", "user_name": "varchar"},
        {"id": "bigint", "user_name": "text"},
    )
    shown = shop.penstock("schema", "show").out
    assert "/user/Name" in shown
    assert "/User/name" in shown


def test_without_its_target_the_ledger_still_shows_what_it_knows(shop: Warehouse) -> None:
    shop.deliver({"id": 1})
    away = {"type": "postgres", "url": "postgresql://nobody@127.0.0.1:1/x", "connect_timeout": "1s"}
    ran = Warehouse(shop.folder, away).configured().penstock("schema", "show", "--json")
    assert ran.code == 0
    assert json.loads(ran.out)[0]["columns"][0]["type"] is None
    assert "PEN-DST-027" in ran.err


def test_one_table_alone(shop: Warehouse) -> None:
    shop.configured(table="{{ kind }}")
    shop.deliver({"kind": "a"}, {"kind": "b"})
    assert [each["table"] for each in shop.json("schema", "show")] == ["a", "b"]
    assert [each["table"] for each in shop.json("schema", "show", "--table", "b")] == ["b"]


def test_every_change_is_in_the_log(shop: Warehouse) -> None:
    shop.deliver({"id": 1})
    shop.deliver({"id": 2, "new": True})
    changes = [json.loads(line) for line in shop.penstock("schema", "log", "--json").out.splitlines()]
    assert [change["statement"].split()[0] for change in changes] == ["CREATE", "ALTER"]
    assert {(change["route"], change["table"]) for change in changes} == {("warehouse", "events")}
    assert shop.penstock("schema", "log", "--last", "1").out.endswith(f"{changes[1]['statement']}\n")


# diff


def test_where_the_ledger_and_the_table_disagree(shop: Warehouse, ask: Ask) -> None:
    shop.deliver({"id": 1, "a": 1})
    shop.configured(schema="freeze").deliver({"id": 2, "a": "x", "late": 5}, {"id": 3, "late": 2.5})
    ask("ALTER TABLE events ADD COLUMN theirs BIGINT")
    (found,) = shop.json("schema", "diff", "--route", "warehouse")
    assert (found["exists"], found["missing"], found["foreign"]) == (True, ["late"], ["theirs"])
    kept = {key["key"]: key for key in found["unmapped"]}
    assert (kept["a"]["values"], kept["a"]["type"], kept["a"]["column"].lower()) == (1, "STRING", "bigint")
    assert (kept["late"]["values"], kept["late"]["type"], kept["late"]["column"]) == (2, "FLOAT64", None)
    shown = shop.penstock("schema", "diff").out
    assert "events._unmapped: 2 values under 'late', FLOAT64" in shown
    assert "events.theirs: not in the ledger" in shown


def test_hundreds_of_differences_of_one_kind_are_one_line(shop: Warehouse, ask: Ask) -> None:
    shop.deliver({"id": 1})
    wide = {f"text_{number}": "x" for number in range(300)} | {f"count_{number}": number for number in range(40)}
    shop.configured(schema="freeze").deliver({"id": 2, **wide, "odd": True})
    for number in range(5):
        ask(f"ALTER TABLE events ADD COLUMN theirs_{number} BIGINT")
    lines = shop.penstock("schema", "diff").out.splitlines()
    assert len(lines) < 10
    assert [line for line in lines if "341 columns not in the table (text_0, text_1, text_2, ...; all: --json)" in line]
    assert [line for line in lines if "_unmapped: 300 values under 300 keys, STRING (text_0" in line]
    assert [line for line in lines if "_unmapped: 1 value under 'odd', BOOL" in line]
    assert [line for line in lines if line.lower().count("5 columns not in the ledger; bigint (theirs_0")]
    (found,) = shop.json("schema", "diff", "--route", "warehouse")
    assert (len(found["missing"]), len(found["unmapped"]), len(found["foreign"])) == (341, 341, 5)


def test_no_difference_is_said(shop: Warehouse) -> None:
    shop.deliver({"id": 1})
    ran = shop.penstock("schema", "diff")
    assert (ran.code, ran.out, ran.err) == (0, "", "no differences\n")


def test_a_table_that_is_gone_is_one(shop: Warehouse, ask: Ask) -> None:
    shop.deliver({"id": 1})
    ask("DROP TABLE events")
    assert shop.penstock("schema", "diff").out == "warehouse  events: the table does not exist\n"


# remap


def test_a_kept_value_goes_back_into_its_column(shop: Warehouse, ask: Ask) -> None:
    shop.deliver({"a": 1})
    shop.deliver({"a": "x"})
    done = shop.json("schema", "remap", "--route", "warehouse", "--table", "events", "--yes")
    assert (done["applied"], done["rows"], done["left"]) == (True, 1, [])
    assert done["columns"] == [{"name": "a", "moved": 1, "unfit": 0, "occupied": 0}]
    assert sorted(ask("SELECT a, _unmapped FROM events")) == [("1", None), ("x", None)]
    logged = [json.loads(line)["statement"] for line in shop.penstock("schema", "log", "--json").out.splitlines()]
    assert logged[-len(done["statements"]) :] == done["statements"]
    assert shop.penstock("schema", "diff").err == "no differences\n"


def test_new_fields_of_a_frozen_table_get_columns_with_the_types_of_their_casts(shop: Warehouse, ask: Ask) -> None:
    shop.deliver({"id": 1})
    shop.configured(schema="freeze").deliver({"id": 2, "late": 5, "price": 7})
    done = shop.json("schema", "remap", "--route", "warehouse", "--table", "events", "--yes")
    assert [column["moved"] for column in done["columns"]] == [1, 1]
    assert any("(12,2)" in statement for statement in done["statements"])
    assert sorted(ask("SELECT id, late, price, _unmapped FROM events"), key=str) == [
        (1, None, None, None), (2, 5, 7, None),
    ]  # fmt: skip
    shop.deliver({"id": 3, "late": 6})
    assert ask("SELECT late FROM events WHERE id = 3") == [(6,)]


def test_it_shows_the_statements_and_asks(shop: Warehouse, ask: Ask) -> None:
    shop.deliver({"a": 1})
    shop.deliver({"a": "x"})
    words = ("schema", "remap", "--route", "warehouse", "--table", "events")
    refused = shop.penstock(*words, answer="n\n")
    assert refused.code == 1
    assert "ALTER TABLE" in refused.out
    assert ask("SELECT count(_unmapped) FROM events") == [(1,)]
    accepted = shop.penstock(*words, answer="y\n")
    assert (accepted.code, accepted.out.splitlines()[-1]) == (0, "a: 1 value moved")
    assert ask("SELECT count(_unmapped) FROM events") == [(0,)]


def test_a_dry_run_does_nothing(shop: Warehouse, ask: Ask) -> None:
    shop.deliver({"a": 1})
    shop.deliver({"a": "x"})
    done = shop.json("schema", "remap", "--route", "warehouse", "--table", "events", "--dry-run")
    assert (done["applied"], done["rows"]) == (False, 0)
    assert len(done["statements"]) == 2
    assert ask("SELECT count(_unmapped) FROM events") == [(1,)]


def test_only_one_column(shop: Warehouse, ask: Ask) -> None:
    shop.deliver({"a": 1, "b": 1})
    shop.deliver({"a": "x", "b": "y"})
    words = ("schema", "remap", "--route", "warehouse", "--table", "events", "--yes")
    done = shop.json(*words, "--column", "b", "--column", "nothing")
    assert [column["name"] for column in done["columns"]] == ["b"]
    assert [left["key"] for left in done["left"]] == ["nothing"]
    (kept,) = ask("SELECT CAST(_unmapped AS VARCHAR) FROM events WHERE _unmapped IS NOT NULL")
    assert json.loads(kept[0]) == {"a": "x"}


def test_what_has_no_column_to_go_to_is_left_and_said(shop: Warehouse) -> None:
    shop.deliver({"a_b": 1, "a": {"b": 2}})
    ran = shop.penstock("schema", "remap", "--route", "warehouse", "--table", "events", "--yes")
    assert (ran.code, ran.out) == (0, "nothing to remap\n")
    assert "'/a/b'" in ran.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--route", "nowhere", "--table", "events"], 2, "PEN-ENG-005"),
        (["--route", "warehouse", "--table", "nothing"], 2, "events"),
        (["--route", "audit", "--table", "events"], 1, "no tables"),
    ],
)
def test_what_cannot_be_remapped_is_said(shop: Warehouse, words: list[str], code: int, said: str) -> None:
    shop.deliver({"a": 1})
    ran = shop.penstock("schema", "remap", *words, "--yes")
    assert ran.code == code
    assert said in ran.err
