"""One table that takes nothing must not hold up the others: every way that we know of, beside a table that is fine.

What failed is told in the database's own words, and is written once the cause is fixed; nothing is there twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.destinations.contract import AnyDestination, Receipt
from penstock.destinations.duckdb.config import DuckdbConfig
from penstock.destinations.duckdb.destination import DuckdbDestination
from penstock.destinations.postgres.config import PostgresConfig
from penstock.destinations.postgres.destination import PostgresDestination
from penstock.testing.destination import Staging, batch, events
from tests.support.database import Database
from tests.support.duckdb_file import open_file


@dataclass(frozen=True)
class Bad:
    """Something that is in the way of rows for the table ``odd``, and how it is fixed.

    ``loads``: rows arrive all the same, with what has no place kept aside.
    """

    name: str
    made: str
    fixed: str
    says: str = ""
    documents: tuple[dict[str, Any], ...] = ({"id": 1, "v": 1}, {"id": 2, "v": 2})
    options: tuple[tuple[str, Any], ...] = ()
    loads: int = 0


AGAIN = "DROP TABLE odd; CREATE TABLE odd (id bigint, v bigint)"
WIDEN = (("on_type_conflict", "widen"),)
TEXT = ({"id": 1, "v": "x"},)
MANY = ", ".join(f"c{n} bigint" for n in range(1_600))
NEARLY = ", ".join(f"c{n} bigint" for n in range(1_598))

POSTGRES = [
    Bad("view", "CREATE VIEW odd AS SELECT 1::bigint + 0 AS id, 2::bigint + 0 AS v", "DROP VIEW odd", "view"),
    Bad(
        "materialized view",
        "CREATE MATERIALIZED VIEW odd AS SELECT 1 AS id",
        "DROP MATERIALIZED VIEW odd",
        "not a table",
    ),
    Bad("sequence", "CREATE SEQUENCE odd", "DROP SEQUENCE odd", "not a table"),
    Bad("enum", "CREATE TYPE odd AS ENUM ('a')", "DROP TYPE odd", "already exists"),
    Bad("composite type", "CREATE TYPE odd AS (a int)", "DROP TYPE odd", "not a table"),
    Bad("domain", "CREATE DOMAIN odd AS int", "DROP DOMAIN odd", "already exists"),
    Bad("index", "CREATE TABLE t (id int); CREATE INDEX odd ON t (id)", "DROP INDEX odd", "not a table"),
    Bad(
        "no partition",
        "CREATE TABLE odd (id bigint, v bigint) PARTITION BY LIST (id)",
        "CREATE TABLE rest PARTITION OF odd DEFAULT",
        "no partition",
    ),
    Bad("check", "CREATE TABLE odd (id bigint, v bigint CHECK (v > 10))", AGAIN, "check constraint"),
    Bad(
        "not null",
        "CREATE TABLE odd (id bigint, v bigint, must int NOT NULL)",
        "ALTER TABLE odd ALTER must DROP NOT NULL",
        "null value in column",
    ),
    Bad(
        "deferred foreign key",
        "CREATE TABLE p (id bigint PRIMARY KEY); CREATE TABLE odd (id bigint,"
        " v bigint REFERENCES p DEFERRABLE INITIALLY DEFERRED)",
        "INSERT INTO p VALUES (1), (2)",
        "foreign key",
    ),
    Bad(
        "deferred unique",
        "CREATE TABLE odd (id bigint, v bigint, UNIQUE (v) DEFERRABLE INITIALLY DEFERRED);"
        " INSERT INTO odd VALUES (0, 1), (0, 2)",
        "DELETE FROM odd",
        "unique constraint",
    ),
    Bad(
        "exclusion",
        "CREATE TABLE odd (id bigint, v bigint, EXCLUDE USING btree (v WITH =)); INSERT INTO odd VALUES (0, 1), (0, 2)",
        "DELETE FROM odd",
        "exclusion constraint",
    ),
    Bad(
        "trigger",
        "CREATE TABLE odd (id bigint, v bigint); CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE 'not today'; END $$;"
        " CREATE TRIGGER no BEFORE INSERT ON odd FOR EACH ROW EXECUTE FUNCTION no()",
        "DROP TRIGGER no ON odd",
        "not today",
    ),
    Bad(
        "broken trigger",
        "CREATE TABLE odd (id bigint, v bigint); CREATE FUNCTION bad() RETURNS trigger LANGUAGE"
        " plpgsql AS $$ BEGIN INSERT INTO nowhere VALUES (1); RETURN NEW; END $$;"
        " CREATE TRIGGER bad BEFORE INSERT ON odd FOR EACH ROW EXECUTE FUNCTION bad()",
        "DROP TRIGGER bad ON odd",
        "nowhere",
    ),
    Bad("too many columns", f"CREATE TABLE odd ({MANY})", AGAIN, "at most 1600 columns"),
    Bad(
        "columns that were dropped count",
        f"CREATE TABLE odd (id bigint, _unmapped jsonb, {NEARLY})",
        "",
        documents=({"id": 1, "v": 7}, {"id": 2, "w": 8}, {"id": 3, "x": 9}, {"id": 4, "y": 1}),
        loads=4,
    ),
    Bad(
        "view on what is widened",
        "CREATE TABLE odd (id bigint, v bigint); CREATE VIEW w AS SELECT v FROM odd",
        "",
        documents=TEXT,
        options=WIDEN,
        loads=1,
    ),
    Bad(
        "generated column on what is widened",
        "CREATE TABLE odd (id bigint, v bigint, twice bigint GENERATED ALWAYS AS (v * 2) STORED)",
        "",
        documents=TEXT,
        options=WIDEN,
        loads=1,
    ),
    Bad("generated column", "CREATE TABLE odd (id bigint, v bigint GENERATED ALWAYS AS (id * 2) STORED)", "", loads=2),
    Bad(
        "deferrable key",
        "CREATE TABLE odd (id bigint PRIMARY KEY DEFERRABLE, v bigint); INSERT INTO odd VALUES (9)",
        "DELETE FROM odd; ALTER TABLE odd DROP CONSTRAINT odd_pkey, ADD PRIMARY KEY (id)",
        "deferrable",
        options=(("primary_key", ["id"]),),
    ),
]
DUCKDB = [
    Bad(
        "view",
        "CREATE TABLE t (kind TEXT, id BIGINT, v BIGINT); CREATE VIEW odd AS FROM t",
        "DROP VIEW odd",
        "not an table",
    ),
    Bad("view without a column", "CREATE VIEW odd AS SELECT 1 AS id", "DROP VIEW odd", "view"),
    Bad("check", "CREATE TABLE odd (id BIGINT, v BIGINT CHECK (v > 10))", AGAIN, "CHECK constraint"),
    Bad(
        "not null",
        "CREATE TABLE odd (id BIGINT, v BIGINT, must INT NOT NULL)",
        "ALTER TABLE odd ALTER must DROP NOT NULL",
        "NOT NULL constraint",
    ),
    Bad(
        "foreign key",
        "CREATE TABLE p (id BIGINT PRIMARY KEY); CREATE TABLE odd (id BIGINT, v BIGINT REFERENCES p (id))",
        "INSERT INTO p VALUES (1), (2)",
        "foreign key",
    ),
    Bad(
        "unique",
        "CREATE TABLE odd (id BIGINT, v BIGINT UNIQUE); INSERT INTO odd VALUES (0, 1), (0, 2)",
        "DELETE FROM odd",
        "unique constraint",
    ),
    Bad(
        "index on what is widened",
        "CREATE TABLE odd (id BIGINT, v BIGINT, _unmapped JSON); CREATE INDEX i ON odd (v)",
        "",
        documents=TEXT,
        options=WIDEN,
        loads=1,
    ),
    Bad(
        "generated column on what is widened",
        "CREATE TABLE odd (id BIGINT, v BIGINT, twice BIGINT AS (v * 2))",
        "",
        documents=TEXT,
        options=WIDEN,
        loads=1,
    ),
    Bad("type", "CREATE TYPE odd AS ENUM ('a')", "", loads=2),
    Bad("macro", "CREATE MACRO odd() AS 1", "", loads=2),
    Bad("sequence", "CREATE SEQUENCE odd", "", loads=2),
]


class BadTables(ABC):
    bad: ClassVar[Bad]

    @abstractmethod
    def make(self, **options: Any) -> AnyDestination: ...

    @abstractmethod
    def run(self, statement: str) -> None: ...

    @abstractmethod
    def ids(self, table: str) -> list[int]: ...

    def load(self, folder: Path, number: int, bad: Bad) -> Receipt:
        odd = [{"kind": "odd", **document} for document in bad.documents]
        fine = [{"kind": "fine", "id": 10 * number + n} for n in range(3)]
        options = {"table": "{{ kind }}", "adopt": ["odd"], **dict(bad.options)}
        destination = self.make(**options)
        parts = Staging(destination, folder / "stage").stage(events(fine[0], *odd, *fine[1:]), first=100 * number)
        receipt = destination.write(batch(number), parts)
        assert [table.table for table in receipt.tables if table.unavailable] == []
        return receipt

    def holds_up_nobody(self, folder: Path, bad: Bad) -> None:
        self.run(bad.made)
        receipt = self.load(folder, 1, bad)
        failed = [message for rows in receipt.failures for message in rows.column("message").to_pylist()]
        assert receipt.rows == 3 + bad.loads
        assert self.ids("fine") == [10, 11, 12]
        assert len(failed) == len(bad.documents) - bad.loads
        assert all(bad.says in message for message in failed), failed
        if bad.loads:
            assert sorted(self.ids("odd")) == [document["id"] for document in bad.documents][: bad.loads]
            return
        # Once it is fixed, what failed is put through again: all of it arrives, and what was there stays.
        for statement in filter(None, bad.fixed.split("; ")):
            self.run(statement)
        again = self.load(folder, 2, bad)
        assert (again.rows, list(again.failures)) == (3 + len(bad.documents), [])
        assert self.ids("odd") == [document["id"] for document in bad.documents]


class TestPostgres(BadTables):
    @pytest.fixture(autouse=True)
    def _schema(self, database: Database) -> None:
        self.database = database
        database.ask(f"CREATE SCHEMA {database.schema}")

    def make(self, **options: Any) -> AnyDestination:
        place = {"url": self.database.dsn, "database_schema": self.database.schema}
        return PostgresDestination(PostgresConfig.model_validate({**place, **options}))

    def run(self, statement: str) -> None:
        self.database.ask(statement)

    def ids(self, table: str) -> list[int]:
        return [row[0] for row in self.database.ask(f"SELECT id FROM {table} ORDER BY id")]

    @pytest.mark.parametrize("bad", POSTGRES, ids=lambda bad: bad.name)
    def test_a_table_that_takes_nothing_holds_up_nobody(self, bad: Bad, tmp_path: Path) -> None:
        self.holds_up_nobody(tmp_path, bad)

    def test_a_view_that_can_be_written_is_written(self, tmp_path: Path) -> None:
        self.run("CREATE TABLE t (id bigint, v bigint, kind text); CREATE VIEW odd AS SELECT * FROM t")
        assert self.load(tmp_path, 1, Bad("", "", "")).rows == 5
        assert self.ids("t") == [1, 2]

    def test_a_table_that_is_locked_is_away_and_the_others_are_not(self, tmp_path: Path) -> None:
        self.run("CREATE TABLE odd (id bigint, v bigint, kind text)")
        with self.database_lock("odd"):
            destination = self.make(table="{{ kind }}", adopt=["odd"], lock_timeout="100ms")
            parts = Staging(destination, tmp_path / "stage").stage(
                events({"kind": "odd", "id": 1}, {"kind": "a", "id": 2})
            )
            receipt = destination.write(batch(1), parts)
        assert {table.table: table.unavailable is None for table in receipt.tables} == {"odd": False, "a": True}
        assert destination.write(batch(1), parts).rows == 2
        assert (self.ids("odd"), self.ids("a")) == ([1], [2])

    def database_lock(self, table: str) -> Any:
        import psycopg

        connection = psycopg.connect(self.database.dsn)
        connection.execute(f'LOCK TABLE "{self.database.schema}"."{table}"'.encode())
        return connection


class TestDuckdb(BadTables):
    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path) -> None:
        self.path = tmp_path / "warehouse.duckdb"

    def make(self, **options: Any) -> AnyDestination:
        return DuckdbDestination(DuckdbConfig.model_validate({"path": self.path, **options}))

    def run(self, statement: str) -> None:
        with open_file(self.path) as connection:
            connection.execute(statement)

    def ids(self, table: str) -> list[int]:
        with open_file(self.path, read_only=True) as connection:
            return [row[0] for row in connection.execute(f"SELECT id FROM {table} ORDER BY id").fetchall()]

    @pytest.mark.parametrize("bad", DUCKDB, ids=lambda bad: bad.name)
    def test_a_table_that_takes_nothing_holds_up_nobody(self, bad: Bad, tmp_path: Path) -> None:
        self.holds_up_nobody(tmp_path, bad)
