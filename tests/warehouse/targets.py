"""The engines that cases run on: how to make a destination there, and how to look at what it did."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from penstock.destinations.contract import AnyDestination
from penstock.destinations.duckdb.config import DuckdbConfig
from penstock.destinations.duckdb.destination import DuckdbDestination
from penstock.destinations.postgres.config import PostgresConfig
from penstock.destinations.postgres.destination import PostgresDestination
from penstock.destinations.sql.schema.schema_operations import Key
from tests.support.database import Database
from tests.support.duckdb_file import open_file
from tests.warehouse.case import Contents, Existing, Options, Row
from tests.warehouse.model import SCHEMA, ModelDestination, ModelTable, Store

POSTGRES_TYPES = {
    "STRING": "text",
    "FLOAT64": "numeric(38,18)",
    "INT64": "bigint",
    "BOOL": "boolean",
    "TIMESTAMP": "timestamp with time zone",
    "JSON": "jsonb",
}
DUCKDB_TYPES = {
    "STRING": "VARCHAR",
    "FLOAT64": "DOUBLE",
    "INT64": "BIGINT",
    "BOOL": "BOOLEAN",
    "TIMESTAMP": "TIMESTAMP WITH TIME ZONE",
    "JSON": "JSON",
    "integer": "INTEGER",
    "smallint": "SMALLINT",
    "numeric(12,2)": "DECIMAL(12,2)",
    "numeric(38,18)": "DECIMAL(38,18)",
    "double precision": "DOUBLE",
    "date": "DATE",
    "uuid": "UUID",
}
"""The table of types, and how a few types that casts ask for are called there."""


class Target(ABC):
    """One engine, empty at first, for one run of one case."""

    types: Mapping[str, str]
    speaks_postgres: bool = True
    """Whether schema changes can be compared with PostgreSQL's words."""
    schema: str

    @abstractmethod
    def destination(self, options: Options) -> AnyDestination: ...

    @abstractmethod
    def make(self, table: str, existing: Existing) -> None:
        """A table as somebody else would have made it."""

    @abstractmethod
    def look(self) -> dict[str, Contents]:
        """The tables that are there, without our own: columns with the engine's types, rows with JSON as text."""

    def definition(self, existing: Existing) -> str:
        columns = [f'"{name}" {self.types.get(kind, kind)}' for name, kind in existing.columns.items()]
        if existing.key:
            columns.append(f'CONSTRAINT "{existing.key_name}" PRIMARY KEY ({", ".join(existing.key)})')
        return ", ".join(columns)


@dataclass
class ModelTarget(Target):
    store: Store = field(default_factory=Store)
    schema: str = SCHEMA

    types = POSTGRES_TYPES

    def destination(self, options: Options) -> AnyDestination:
        return ModelDestination(PostgresConfig.model_validate({"url": "host=nowhere", **options}), self.store)

    def make(self, table: str, existing: Existing) -> None:
        columns = {name: self.types.get(kind, kind) for name, kind in existing.columns.items()}
        self.store.tables[table] = ModelTable(columns, Key(existing.key_name, existing.key) if existing.key else None)

    def look(self) -> dict[str, Contents]:
        return {name: Contents(table.columns, table.rows) for name, table in self.store.tables.items()}


@dataclass
class DuckdbTarget(Target):
    path: Path

    types = DUCKDB_TYPES
    speaks_postgres = False
    schema = "main"

    def destination(self, options: Options) -> AnyDestination:
        return DuckdbDestination(DuckdbConfig.model_validate({"path": self.path, **options}))

    def make(self, table: str, existing: Existing) -> None:
        with open_file(self.path) as connection:
            connection.execute(f'CREATE TABLE "{table}" ({self.definition(existing)})')

    def look(self) -> dict[str, Contents]:
        if not self.path.exists():
            return {}
        columns: dict[str, dict[str, str]] = {}
        with open_file(self.path, read_only=True) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            for table, name, kind in connection.execute(_DUCKDB_COLUMNS).fetchall():
                columns.setdefault(table, {})[name] = kind
            return {
                table: Contents(kinds, _rows(kinds, connection.execute(f'SELECT * FROM "{table}"').fetchall()))
                for table, kinds in columns.items()
                if not table.startswith(OURS)
            }


@dataclass
class PostgresTarget(Target):
    database: Database

    types = POSTGRES_TYPES

    @property
    def schema(self) -> str:  # type: ignore[override]
        return self.database.schema

    def destination(self, options: Options) -> AnyDestination:
        place = {"url": self.database.dsn, "database_schema": self.database.schema}
        return PostgresDestination(PostgresConfig.model_validate({**place, **options}))

    def make(self, table: str, existing: Existing) -> None:
        self.database.ask(f'CREATE SCHEMA IF NOT EXISTS "{self.schema}"')
        self.database.ask(f'CREATE TABLE "{table}" ({self.definition(existing)})')

    def look(self) -> dict[str, Contents]:
        columns: dict[str, dict[str, str]] = {}
        with psycopg.connect(self.database.dsn) as connection:
            connection.execute("SET TIME ZONE 'UTC'")
            for table, name, kind in connection.execute(_POSTGRES_COLUMNS, (self.schema,)).fetchall():
                columns.setdefault(table, {})[name] = kind
            return {
                table: Contents(kinds, _rows(kinds, connection.execute(self._query(table, kinds).encode()).fetchall()))
                for table, kinds in columns.items()
                if not table.startswith(OURS)
            }

    def _query(self, table: str, kinds: Mapping[str, str]) -> str:
        listed = ", ".join(f'"{name}"::text' if kind == "jsonb" else f'"{name}"' for name, kind in kinds.items())
        return f'SELECT {listed} FROM "{self.schema}"."{table}"'


OURS = "_penstock_"
_DUCKDB_COLUMNS = (
    "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal ORDER BY column_index"
)
_POSTGRES_COLUMNS = """
    SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod)
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relkind = 'r' AND a.attnum > 0 ORDER BY a.attnum
"""


def _rows(columns: Mapping[str, str], found: Sequence[tuple[object, ...]]) -> list[Row]:
    """Without what is NULL."""
    return [{name: value for name, value in zip(columns, row, strict=True) if value is not None} for row in found]
