"""Tables mirrored into a PostgreSQL database."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.destinations.postgres.config import PostgresConfig
from penstock.destinations.postgres.destination import PostgresDestination
from tests.contract.mirror import MirrorContract, Row, Target
from tests.support.database import Database


class PostgresTarget(Target):
    def __init__(self, database: Database) -> None:
        self.database = database
        database.ask(f'CREATE SCHEMA IF NOT EXISTS "{database.schema}"')

    def destination(self, **options: Any) -> PostgresDestination:
        return PostgresDestination(
            PostgresConfig.model_validate(
                {"dsn": self.database.dsn, "database_schema": self.database.schema, **options}
            )
        )

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
