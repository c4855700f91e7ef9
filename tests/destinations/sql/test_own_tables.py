"""Whose tables they are, on a DuckDB file, a PostgreSQL and the model of an engine; and what a config may allow."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from penstock.destinations.contract import NULL_TABLE_BOOK, AnyDestination, Owner
from penstock.destinations.duckdb.config import DuckdbConfig
from penstock.destinations.duckdb.destination import DuckdbDestination
from penstock.destinations.postgres.config import PostgresConfig
from penstock.destinations.postgres.destination import PostgresDestination
from penstock.destinations.sql.stage.allowed_tables import AllowedTables
from penstock.destinations.sql.stage.table_name import TableChooser
from penstock.testing.destination import Staging, batch, events
from penstock.testing.own_tables import OVERFLOW, OwnTablesContract
from penstock.testing.waiting import HANG
from tests.support.database import Database
from tests.support.duckdb_file import open_file
from tests.warehouse.model import ModelDestination, ModelTable, Store


class TestDuckdb(OwnTablesContract):
    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path) -> None:
        self.path = tmp_path / "warehouse.duckdb"

    def make(self, **options: Any) -> AnyDestination:
        return DuckdbDestination(DuckdbConfig.model_validate({"path": self.path, **options}))

    def run(self, statement: str) -> None:
        with open_file(self.path) as connection:
            connection.execute(statement)

    def rows(self, table: str, columns: str = "id") -> list[tuple[Any, ...]]:
        with open_file(self.path, read_only=True) as connection:
            return sorted(connection.execute(f"SELECT {columns} FROM {table}").fetchall())

    def test_a_view_of_that_name_is_somebody_else_s_too(self) -> None:
        self.run("CREATE TABLE t (id BIGINT); CREATE VIEW orders AS SELECT * FROM t")
        assert self.codes(self.load(1, {"id": 1, "kind": "orders"})) == ["table_not_ours"]


class TestPostgres(OwnTablesContract):
    @pytest.fixture(autouse=True)
    def _schema(self, database: Database) -> None:
        self.database = database
        database.ask(f"CREATE SCHEMA {database.schema}")

    def make(self, **options: Any) -> AnyDestination:
        place = {"url": self.database.dsn, "database_schema": self.database.schema}
        return PostgresDestination(PostgresConfig.model_validate({**place, **options}))

    def run(self, statement: str) -> None:
        self.database.ask(statement)

    def rows(self, table: str, columns: str = "id") -> list[tuple[Any, ...]]:
        return sorted(self.database.ask(f"SELECT {columns} FROM {table}"))

    @pytest.mark.parametrize(
        "made",
        [
            "CREATE VIEW odd AS SELECT 1 AS id",
            "CREATE MATERIALIZED VIEW odd AS SELECT 1 AS id",
            "CREATE SEQUENCE odd",
            "CREATE TYPE odd AS ENUM ('a')",
            "CREATE TYPE odd AS (a int)",
            "CREATE DOMAIN odd AS int",
            "CREATE TABLE t (id int); CREATE INDEX odd ON t (id)",
            "CREATE TABLE odd (id int) PARTITION BY LIST (id)",
        ],
    )
    def test_whatever_has_that_name_is_somebody_else_s(self, made: str) -> None:
        self.run(made)
        receipt = self.load(1, {"id": 1, "kind": "odd"}, {"id": 2, "kind": "fine"})
        assert (receipt.rows, self.codes(receipt)) == (1, ["table_not_ours"])

    def test_engines_at_the_limit_make_no_table_too_many(self) -> None:
        """They are of one route, and all begin at once."""
        names = [f"t{number}" for number in range(8)]
        engines = [self.make(table="{{ kind }}", max_tables=5) for _ in range(4)]
        start = threading.Barrier(len(engines))
        loaded: list[int] = []

        def work(place: int) -> None:
            folder = self.folder.parent / f"stage{place}"
            parts = Staging(engines[place], folder).stage(events(*({"id": place, "kind": name} for name in names)))
            start.wait()
            loaded.append(engines[place].write(batch(1 + place), parts, NULL_TABLE_BOOK).rows)

        threads = [threading.Thread(target=work, args=(place,)) for place in range(len(engines))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG)
        assert loaded == [8] * 4
        made = [name for (name,) in self.database.ask("SELECT table_name FROM _penstock_tables ORDER BY 1")]
        assert made == names[:5]
        assert [len(self.rows(name)) for name in made] == [4] * 5
        assert len(self.rows(OVERFLOW)) == 4 * 3


class TestModel(OwnTablesContract):
    @pytest.fixture(autouse=True)
    def _store(self) -> None:
        self.store = Store()

    def make(self, **options: Any) -> AnyDestination:
        return ModelDestination(PostgresConfig.model_validate({"url": "host=nowhere", **options}), self.store)

    def run(self, statement: str) -> None:
        if statement.startswith("DROP"):
            self.store.registered.clear()
        elif statement.startswith("ALTER"):
            self.store.registered = [(table, Owner("", owner.route)) for table, owner in self.store.registered]
        else:
            self.store.tables["customers"] = ModelTable({"id": "bigint"})

    def rows(self, table: str, columns: str = "id") -> list[tuple[Any, ...]]:
        return sorted(tuple(row.get(name) for name in columns.split(", ")) for row in self.store.tables[table].rows)


ALLOWED = ["orders", "/shop_[a-z]+/"]


@pytest.mark.parametrize(
    ("named", "table", "code"),
    [
        ("orders", "orders", ""),
        ("ORDERS", "orders", ""),
        ("shop_mugs", "shop_mugs", ""),
        ("customers", "", "table_not_allowed"),
        ("shop_1", "", "table_not_allowed"),
        ("my shop_mugs", "", "table_not_allowed"),
        ("orders; DROP TABLE x", "", "table_not_allowed"),
        ('pg_catalog"."pg_class', "", "table_not_allowed"),
        ("_penstock_loads", "", "table_name"),
        ("o" * 100, "", "table_not_allowed"),
    ],
)
def test_a_record_goes_to_a_table_that_is_allowed_or_fails(named: str, table: str, code: str) -> None:
    names = TableChooser("{{ kind }}", 63, AllowedTables.of(ALLOWED))
    (choice,) = names.choose(pa.array([json.dumps({"kind": named}).encode()], pa.binary()))
    assert (choice.table, choice.code if choice.problem else "") == (table, code)


def test_what_is_reserved_is_refused_whatever_is_allowed() -> None:
    (choice,) = TableChooser("{{ kind }}", 63, AllowedTables.of(["/.*/"])).choose(
        pa.array([b'{"kind": "_penstock_overflow_shop"}'], pa.binary())
    )
    assert choice.problem


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tables": ["Orders"]}, "it would be 'orders'"),
        ({"tables": ["/("]}, "neither a name nor a pattern"),
        ({"tables": ["/(/"]}, "is not a regular expression"),
        ({"tables": ["_penstock_loads"]}, "Penstock's own"),
        ({"adopt": ["_penstock_loads"]}, "Penstock's own"),
        ({"tables": ["orders"], "table": "{{ a }}", "adopt": ["users"]}, "`tables` does not allow"),
        ({"tables": ["orders"], "table": "users"}, "`tables` does not allow 'users'"),
        ({"max_tables": 0}, "greater than or equal to 1"),
    ],
)
def test_a_config_that_contradicts_itself_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        DuckdbConfig.model_validate({"path": "x.duckdb", **options})
