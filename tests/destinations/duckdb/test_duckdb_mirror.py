"""Tables mirrored into a DuckDB file."""

from __future__ import annotations

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
    aside,
    ends_like_its_source,
    failures,
)
from tests.support.duckdb_file import open_file


class DuckdbTarget(Target):
    def __init__(self, path: Path) -> None:
        self.path = path

    def config(self) -> dict[str, Any]:
        return {"type": "duckdb", "path": str(self.path)}

    def run(self, statement: str) -> None:
        with open_file(self.path) as connection:
            connection.execute(statement)

    def rows(self, table: str = "users", order: str = "1") -> list[Row]:
        with open_file(self.path) as connection:
            found = connection.execute(f"SELECT * FROM {table} ORDER BY {order}")
            names = [column[0] for column in found.description]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def columns(self, table: str = "users") -> dict[str, str]:
        with open_file(self.path) as connection:
            query = "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? ORDER BY column_index"
            return dict(connection.execute(query, [table]).fetchall())


class TestDuckdbMirror(MirrorContract):
    text, bigint = "VARCHAR", "BIGINT"

    @pytest.fixture
    def target(self, tmp_path: Path) -> Target:
        return DuckdbTarget(tmp_path / "mirror.duckdb")


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    return Replica(DuckdbTarget(tmp_path / "mirror.duckdb"), tmp_path / "stage")


VALUES = {
    "smallint": ("SMALLINT", -7, "-7"),
    "integer": ("INTEGER", 7, "7"),
    "real": ("FLOAT", 1.5, "1.5"),
    "double precision": ("DOUBLE", "-Infinity", "-inf"),
    "numeric": ("DECIMAL(38,18)", 1.5, "1.500000000000000000"),
    "numeric(12,2)": ("DECIMAL(12,2)", 1234567890.5, "1234567890.50"),
    "numeric(50,10)": ("VARCHAR", 1.5, "1.5"),
    "boolean": ("BOOLEAN", False, "false"),
    "character varying(3)": ("VARCHAR", "abc", "abc"),
    "bytea": ("VARCHAR", "\\x00ff", "\\x00ff"),
    "date": ("DATE", "12026-01-02", "12026-01-02"),
    "timestamp without time zone": ("TIMESTAMP", "infinity", "infinity"),
    "timestamp with time zone": ("TIMESTAMP WITH TIME ZONE", "2026-01-02T03:04:05.1Z", "2026-01-02 03:04:05.1+00"),
    "time without time zone": ("TIME", "24:00:00", "24:00:00"),
    "interval": ("VARCHAR", "-1 days +02:03:00", "-1 days +02:03:00"),
    "uuid": ("UUID", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "jsonb": ("JSON", [1, {"a": None}], '[1, {"a": null}]'),
    "integer[]": ("VARCHAR", "{1,NULL,3}", "{1,NULL,3}"),
    "app.mood": ("VARCHAR", "sad", "sad"),
}
"""Declared types, each with DuckDB's, a value as a source gives it, and as DuckDB says it."""


def test_every_type_of_postgresql_has_one_here(replica: Replica) -> None:
    names = {kind: f"c{place}" for place, kind in enumerate(VALUES)}
    source = Source({"id": "bigint", **{name: kind for kind, name in names.items()}})
    replica.load(source.insert(id=1, **{names[kind]: value for kind, (_, value, _) in VALUES.items()}))
    columns = list(replica.target.columns().values())
    assert columns == ["BIGINT", *(there for there, _, _ in VALUES.values())]
    texts = ", ".join(f"{name}::VARCHAR AS {name}" for name in names.values())
    replica.target.run(f"SET TimeZone = 'UTC'; CREATE TABLE texts AS SELECT {texts} FROM users")
    (row,) = replica.target.rows("texts")
    assert [row[name] for name in names.values()] == [said for _, _, said in VALUES.values()]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("numeric(5,2)", "NaN"),
        ("numeric", 1e-19),
        ("date", "0044-03-15 BC"),
        ("timestamp without time zone", "0044-03-15 01:02:03 BC"),
    ],
)
def test_what_duckdb_would_not_take_as_it_is_meant_is_kept_aside(replica: Replica, kind: str, value: Any) -> None:
    replica.load(Source({"id": "bigint", "a": kind}).insert(id=1, a=value))
    (row,) = replica.target.rows()
    assert (row["a"], aside(row)) == (None, {"a": value})


def test_a_table_with_its_owner_s_key_and_columns_is_mirrored_too(replica: Replica) -> None:
    replica.target.run("CREATE TABLE users (id BIGINT PRIMARY KEY, name VARCHAR, seen INTEGER DEFAULT 7)")
    source = Source({"id": "bigint", "name": "text"})
    replica.load(source.insert(id=1, name="a"), source.insert(id=2, name="b"))
    replica.target.run("UPDATE users SET seen = 8 WHERE id = 1")
    replica.load(source.update(id=1, name="c"), source.update({"id": 2}, id=3))
    replica.load(source.delete(id=3), source.insert(id=2, name="d"))
    assert [tuple(row.values()) for row in replica.target.rows()] == [(1, "c", 8), (2, "d", 7)]


def test_what_stands_in_a_table_s_place_is_not_the_records_fault(replica: Replica) -> None:
    replica.target.run("CREATE TABLE elsewhere (id BIGINT, name VARCHAR); CREATE VIEW users AS SELECT * FROM elsewhere")
    parts, _ = replica.stage([Source({"id": "bigint", "name": "text"}).insert(id=1, name="a")])
    (receipt,) = replica.destination.write(batch(), parts).tables
    assert receipt.unavailable is not None
    replica.target.run("DROP VIEW users")
    assert replica.destination.write(batch(), parts).rows == 1


def test_one_bad_change_among_many_is_found(replica: Replica) -> None:
    replica.target.run("CREATE TABLE users (id BIGINT, name VARCHAR CHECK (name <> 'bad'))")
    source = Source({"id": "bigint", "name": "text"})
    records = [source.insert(id=n, name="bad" if n in (777, 4_000) else "fine") for n in range(5_000)]
    receipt = replica.load(*records)
    assert [offset for offset, _, _ in failures(receipt)] == [777, 4_000]
    assert len(replica.target.rows()) == 4_998


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=BATCHES)
@example(batches=[[("insert", KEYS[0], {}), ("move", KEYS[0], KEYS[1], {"n": None, "t": None, "doc": None})]])
def test_whatever_happens_the_mirror_ends_like_its_source(tmp_path: Path, batches: list[list[tuple[Any, ...]]]) -> None:
    (tmp_path / "mirror.duckdb").unlink(missing_ok=True)
    ends_like_its_source(Replica(DuckdbTarget(tmp_path / "mirror.duckdb"), tmp_path / "stage"), batches)


def test_a_batch_of_more_rows_than_a_row_group_arrives_whole(replica: Replica) -> None:
    count, source = 250_000, Source({"id": "bigint", "n": "bigint"})
    replica.load(*(source.insert(id=n, n=1) for n in range(count)), size=count)
    replica.load(*(source.update(id=n, n=2) for n in range(count)), size=count)
    with open_file(replica.target.config()["path"]) as connection:
        found = connection.execute("SELECT count(DISTINCT id), sum(n) FROM users").fetchall()
    assert found == [(count, 2 * count)]
