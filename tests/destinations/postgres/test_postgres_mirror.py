"""Tables mirrored into a PostgreSQL database."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings

from penstock.testing.destination import batch
from penstock.testing.mirror import (
    BATCHES,
    KEYS,
    MirrorContract,
    Replica,
    Row,
    Source,
    Target,
    ends_like_its_source,
    failures,
)
from tests.support.database import Database


class PostgresTarget(Target):
    def __init__(self, database: Database) -> None:
        self.database = database
        database.ask(f'CREATE SCHEMA IF NOT EXISTS "{database.schema}"')

    def config(self) -> dict[str, Any]:
        return {"type": "postgres", "url": self.database.dsn, "database_schema": self.database.schema}

    def run(self, statement: str) -> None:
        self.database.ask(statement)

    def rows(self, table: str = "users", order: str = "1") -> list[Row]:
        names = list(self.columns(table))
        found = self.database.ask(f"SELECT * FROM {table} ORDER BY {order}")
        return [dict(zip(names, row, strict=True)) for row in found]

    def columns(self, table: str = "users") -> dict[str, str]:
        found = self.database.ask(f"SELECT to_regclass('{table}')")
        return {} if found == [(None,)] else self.database.columns(table)


class TestPostgresMirror(MirrorContract):
    text, bigint = "text", "bigint"

    @pytest.fixture
    def target(self, database: Database) -> Target:
        return PostgresTarget(database)


@pytest.fixture
def target(database: Database) -> PostgresTarget:
    return PostgresTarget(database)


@pytest.fixture
def replica(target: PostgresTarget, tmp_path: Path) -> Replica:
    return Replica(target, tmp_path / "stage")


VALUES = {
    "smallint": (-7, "-7"),
    "real": (1.5, "1.5"),
    "double precision": ("NaN", "NaN"),
    "numeric": (1.5, "1.5"),
    "boolean": (False, "false"),
    "character varying(3)": ("abc", "abc"),
    "character(3)": ("a  ", "a"),
    "bytea": ("\\x00ff", "\\x00ff"),
    "date": ("0044-03-15 BC", "0044-03-15 BC"),
    "timestamp without time zone": ("infinity", "infinity"),
    "timestamp(3) with time zone": ("2026-01-02T03:04:05.123Z", "2026-01-02 03:04:05.123+00"),
    "time without time zone": ("24:00:00", "24:00:00"),
    "interval": ("-1 days +02:03:00", "-1 days +02:03:00"),
    "uuid": ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "json": ({"b": 1}, '{"b": 1}'),
    "jsonb": ([1, {"a": None}], '[1, {"a": null}]'),
    "inet": ("10.0.0.1/8", "10.0.0.1/8"),
    "integer[]": ("{1,NULL,3}", "{1,NULL,3}"),
    "int4range": ("[1,5)", "[1,5)"),
    "point": ("(1,2)", "(1,2)"),
    "bit varying(4)": ("101", "101"),
    "money": ("$1.50", "$1.50"),
}
"""Declared types, each with a value as a source gives it and as PostgreSQL says it."""


def test_every_type_of_postgresql_arrives_as_itself(replica: Replica, target: PostgresTarget) -> None:
    names = {kind: f"c{place}" for place, kind in enumerate(VALUES)}
    source = Source({"id": "bigint", **{name: kind for kind, name in names.items()}})
    replica.load(source.insert(id=1, **{names[kind]: value for kind, (value, _) in VALUES.items()}))
    assert list(target.columns().values()) == ["bigint", *VALUES]
    (row,) = target.database.ask(f"SELECT {', '.join(f'{name}::text' for name in names.values())} FROM users")
    assert list(row) == [said for _, said in VALUES.values()]


def test_numbers_keep_all_their_digits(replica: Replica, target: PostgresTarget) -> None:
    digits = "12345678901234567890123.45678901234567890100"
    source = Source({"id": "bigint", "a": "numeric", "b": "numeric(50,20)"})
    record = source.insert(id=1)
    replica.load(replace(record, data=f'{{"id":1,"a":{digits},"b":{digits}}}'.encode()))
    assert target.database.ask("SELECT a::text, b::text FROM users") == [(digits, digits)]


def test_json_arrives_as_it_was_written(replica: Replica, target: PostgresTarget) -> None:
    source = Source({"id": "bigint", "doc": "json"})
    replica.load(replace(source.insert(id=1), data=b'{"id":1,"doc":{"b" : 1,  "a":[ ], "b":"\\u0000"}}'))
    assert target.database.ask("SELECT doc::text FROM users") == [('{"b" : 1,  "a":[ ], "b":"\\u0000"}',)]


def test_a_type_that_is_not_everywhere_is_text_unless_the_table_has_it(
    replica: Replica, target: PostgresTarget
) -> None:
    target.run("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    target.run("CREATE TABLE people (id bigint PRIMARY KEY, feels mood)")
    moods = {"id": "bigint", "feels": "app.mood"}
    users, people = Source(moods), Source(moods, namespace="public.people")
    receipt = replica.load(
        users.insert(id=1, feels="sad"), people.insert(id=1, feels="sad"), people.insert(id=2, feels="angry")
    )
    assert target.columns()["feels"] == "text"
    assert [row["feels"] for row in target.rows("people")] == ["sad"]
    ((offset, code, message),) = failures(receipt)
    assert (offset, code) == (2, "refused")
    assert "invalid input value for enum" in message


def test_values_that_are_unique_can_be_passed_on(replica: Replica, target: PostgresTarget) -> None:
    """At no time do two rows have the value at the source, but in the end each has one that was another's."""
    target.run("CREATE TABLE users (id bigint PRIMARY KEY, name text UNIQUE)")
    source = Source({"id": "bigint", "name": "text"})
    replica.load(source.insert(id=1, name="a"), source.insert(id=2, name="b"))
    receipt = replica.load(
        source.update(id=1, name="c"), source.update(id=2, name="a"), source.update(id=1, name="b"),
        source.insert(id=3, name="a"),
    )  # fmt: skip
    assert [(offset, code) for offset, code, _ in failures(receipt)] == [(5, "refused")]
    assert [tuple(row.values()) for row in target.rows()] == [(1, "b"), (2, "a")]


def test_keys_that_only_the_database_calls_equal_are_one_row(replica: Replica, target: PostgresTarget) -> None:
    target.run("CREATE TABLE users (id character(5) PRIMARY KEY, name text)")
    source = Source({"id": "character varying(5)", "name": "text"})
    replica.load(source.insert(id="x", name="there"))
    replica.load(source.insert(id="ab", name="first"), source.update(id="ab  ", name="second"))
    assert [row["name"] for row in target.rows()] == ["second", "there"]


def test_a_table_made_by_hand_keeps_what_is_its_own(replica: Replica, target: PostgresTarget) -> None:
    target.run(
        "CREATE TABLE users (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text,"
        " loud text GENERATED ALWAYS AS (upper(name)) STORED, seen integer NOT NULL DEFAULT 7,"
        " n integer GENERATED ALWAYS AS IDENTITY)"
    )
    source = Source({"id": "bigint", "name": "text", "n": "integer"})
    replica.load(source.insert(id=10, name="a", n=1), source.insert(id=11, name="b", n=2))
    target.run("UPDATE users SET seen = 8 WHERE id = 10")
    replica.load(source.update(id=10, name="c", n=1), source.update({"id": 11}, id=12, name="d", n=2))
    found = [(row["id"], row["name"], row["loud"], row["seen"], row["n"]) for row in target.rows()]
    assert found == [(10, "c", "C", 8, 1), (12, "d", "D", 7, 2)]
    replica.load(source.update({"id": 10}, id=9, name="e", n=1))
    assert [(row["id"], row["seen"]) for row in target.rows()] == [(9, 8), (12, 7)]


def test_one_bad_change_among_many_is_found(replica: Replica, target: PostgresTarget) -> None:
    target.run("CREATE TABLE users (id bigint PRIMARY KEY, name text CHECK (name <> 'bad'))")
    source = Source({"id": "bigint", "name": "text"})
    records = [source.insert(id=n, name="bad" if n in (777, 4_000) else "fine") for n in range(5_000)]
    receipt = replica.load(*records)
    assert [offset for offset, _, _ in failures(receipt)] == [777, 4_000]
    assert target.database.ask("SELECT count(*) FROM users") == [(4_998,)]


def test_a_change_that_a_trigger_drops_without_a_word_fails_alone(replica: Replica, target: PostgresTarget) -> None:
    target.run(
        "CREATE TABLE users (id bigint PRIMARY KEY, name text);"
        "CREATE FUNCTION drop_bad() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF NEW.name = 'bad' THEN RETURN NULL; END IF; RETURN NEW; END $$;"
        "CREATE TRIGGER drop_bad BEFORE INSERT OR UPDATE ON users FOR EACH ROW EXECUTE FUNCTION drop_bad()"
    )
    source = Source({"id": "bigint", "name": "text"})
    first = replica.load(*(source.insert(id=n, name="bad" if n == 7 else "fine") for n in range(20)))
    assert [offset for offset, _, _ in failures(first)] == [7]
    second = replica.load(*(source.update({"id": n}, id=n, name="bad" if n == 3 else "new") for n in range(5)))
    assert [offset for offset, _, _ in failures(second)] == [23]
    assert target.database.ask("SELECT name, count(*) FROM users GROUP BY 1 ORDER BY 1") == [("fine", 15), ("new", 4)]


def test_a_delete_that_a_trigger_prevents_fails_alone(replica: Replica, target: PostgresTarget) -> None:
    target.run(
        "CREATE TABLE users (id bigint PRIMARY KEY, name text);"
        "CREATE FUNCTION keep_bad() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF OLD.name = 'kept' THEN RETURN NULL; END IF; RETURN OLD; END $$;"
        "CREATE TRIGGER keep_bad BEFORE DELETE ON users FOR EACH ROW EXECUTE FUNCTION keep_bad()"
    )
    source = Source({"id": "bigint", "name": "text"})
    replica.load(*(source.insert(id=n, name="kept" if n == 7 else "fine") for n in range(10)))
    receipt = replica.load(*(source.delete(id=n) for n in range(5, 10)))
    assert [offset for offset, _, _ in failures(receipt)] == [12]
    assert [row["id"] for row in target.rows()] == [0, 1, 2, 3, 4, 7]


def test_a_truncate_that_a_trigger_prevents_fails(replica: Replica, target: PostgresTarget) -> None:
    source = Source({"id": "bigint", "name": "text"})
    replica.load(source.insert(id=1, name="a"))
    target.run(
        "CREATE FUNCTION keep_all() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;"
        "CREATE TRIGGER keep_all BEFORE DELETE ON users FOR EACH ROW EXECUTE FUNCTION keep_all()"
    )
    receipt = replica.load(source.truncate())
    assert [offset for offset, _, _ in failures(receipt)] == [1]


def test_a_table_that_cannot_be_emptied_before_its_first_copy_waits(replica: Replica, target: PostgresTarget) -> None:
    source = Source({"id": "bigint", "name": "text"})
    target.run(
        "CREATE TABLE users (id bigint PRIMARY KEY, name text); INSERT INTO users VALUES (7, 'before');"
        "CREATE FUNCTION keep_all() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;"
        "CREATE TRIGGER keep_all BEFORE DELETE ON users FOR EACH ROW EXECUTE FUNCTION keep_all()"
    )
    parts, _ = replica.stage([source.begin(), source.insert(id=1, name="a")])
    (receipt,) = replica.destination.write(batch(0), parts).tables
    assert receipt.unavailable is not None
    assert receipt.unavailable.code == "PEN-DST-118"
    target.run("DROP TRIGGER keep_all ON users")
    assert replica.destination.write(batch(0), parts).rows == 2
    assert [row["id"] for row in target.rows()] == [1]


def test_a_server_that_goes_away_takes_nothing_with_it(replica: Replica, target: PostgresTarget) -> None:
    source = Source({"id": "bigint", "name": "text"})
    replica.load(source.insert(id=1, name="a"))
    target.run("ALTER TABLE users RENAME TO elsewhere; CREATE VIEW users AS SELECT * FROM elsewhere")
    parts, _ = replica.stage([source.update(id=1, name="b"), source.insert(id=2, name="c")])
    (receipt,) = replica.destination.write(batch(1), parts).tables
    assert receipt.unavailable is not None
    target.run("DROP VIEW users; ALTER TABLE elsewhere RENAME TO users")
    assert replica.destination.write(batch(1), parts).rows == 2
    assert [row["name"] for row in target.rows()] == ["b", "c"]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=BATCHES)
@example(batches=[[("insert", KEYS[0], {}), ("move", KEYS[0], KEYS[1], {"n": None, "t": None, "doc": None})]])
def test_whatever_happens_the_mirror_ends_like_its_source(
    postgres_url: str, tmp_path: Path, batches: list[list[tuple[Any, ...]]]
) -> None:
    database = Database(postgres_url, f"t{uuid.uuid4().hex[:12]}")
    ends_like_its_source(Replica(PostgresTarget(database), tmp_path / "stage"), batches)
