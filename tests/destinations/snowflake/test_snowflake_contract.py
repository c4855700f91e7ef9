"""The promises of a destination with transactions, kept on ``fakesnow``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.destinations.contract import AnyDestination
from penstock.destinations.snowflake.destination import SnowflakeDestination
from penstock.testing.large_batch import LARGE
from penstock.testing.own_tables import OwnTablesContract
from penstock.testing.sql_destination import SqlContract
from tests.destinations.snowflake.conftest import Account


class TestSnowflake(SqlContract):
    in_this_process = True
    most_memory_to_write = 10 * LARGE  # the stand-in is a part of this process

    @pytest.fixture(autouse=True)
    def _account(self, account: Account) -> None:
        self.account = account

    def make(self, tmp_path: Path) -> SnowflakeDestination:
        return self.account.destination()

    def ids(self, destination: AnyDestination) -> list[int]:
        return [row[0] for row in self.account.ask("SELECT id FROM events")]


class TestSnowflakeTables(OwnTablesContract):
    @pytest.fixture(autouse=True)
    def _account(self, account: Account) -> None:
        self.account = account

    def make(self, **options: Any) -> AnyDestination:
        return self.account.destination(**options)

    def run(self, statement: str) -> None:
        self.account.ask(statement)

    def rows(self, table: str, columns: str = "id") -> list[tuple[Any, ...]]:
        return sorted(self.account.ask(f"SELECT {columns} FROM {table}"))
