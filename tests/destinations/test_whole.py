"""All rows or none, on DuckDB and on a real PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from penstock.destinations.contract import AnyDestination
from penstock.destinations.duckdb.config import DuckdbConfig
from penstock.destinations.duckdb.destination import DuckdbDestination
from penstock.destinations.postgres.config import PostgresConfig
from penstock.destinations.postgres.destination import PostgresDestination
from tests.contract.whole import WholeContract
from tests.support.database import Database

COLUMNS = "id bigint, kind text, amount bigint, CONSTRAINT positive_{table} CHECK (amount > 0)"


class TestDuckdbWhole(WholeContract):
    @pytest.fixture(autouse=True)
    def _tables(self, tmp_path: Path) -> None:
        self.path = tmp_path / "warehouse.duckdb"
        with duckdb.connect(self.path) as connection:
            for table in ("small", "large"):
                connection.execute(f"CREATE TABLE {table} ({COLUMNS.format(table=table)})")

    def make(self, **options: Any) -> AnyDestination:
        return DuckdbDestination(DuckdbConfig.model_validate({"path": self.path, "table": "{{ kind }}", **options}))

    def ids(self, table: str) -> list[int]:
        with duckdb.connect(self.path, read_only=True) as connection:
            return [row[0] for row in connection.execute(f"SELECT id FROM {table} ORDER BY id").fetchall()]


class TestPostgresWhole(WholeContract):
    @pytest.fixture(autouse=True)
    def _tables(self, database: Database) -> None:
        self.database = database
        database.ask(f"CREATE SCHEMA {database.schema}")
        for table in ("small", "large"):
            database.ask(f"CREATE TABLE {table} ({COLUMNS.format(table=table)})")

    def make(self, **options: Any) -> AnyDestination:
        where = {"dsn": self.database.dsn, "database_schema": self.database.schema, "table": "{{ kind }}"}
        return PostgresDestination(PostgresConfig.model_validate({**where, **options}))

    def ids(self, table: str) -> list[int]:
        return [row[0] for row in self.database.ask(f"SELECT id FROM {table} ORDER BY id")]
