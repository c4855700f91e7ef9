"""The promises that every destination makes, and those that ClickHouse can make beyond."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.destinations.clickhouse.destination import ClickhouseDestination
from penstock.destinations.contract import AnyDestination
from penstock.testing.large_batch import LARGE
from penstock.testing.own_tables import OwnTablesContract
from penstock.testing.sql_destination import MarkedContract
from tests.destinations.clickhouse.conftest import Engine


class TestClickhouse(MarkedContract):
    in_this_process = True
    most_memory_to_write = 10 * LARGE  # the engine is a part of this process

    @pytest.fixture(autouse=True)
    def _embedded(self, engine: Engine) -> None:
        self.engine = engine

    def make(self, tmp_path: Path) -> ClickhouseDestination:
        return self.engine.destination()

    def ids(self, destination: AnyDestination) -> list[int]:
        return [row[0] for row in self.engine.ask("SELECT id FROM events SETTINGS max_threads = 1")]


class TestClickhouseTables(OwnTablesContract):
    foreign = "CREATE TABLE customers (id Int64) ENGINE = MergeTree ORDER BY tuple()"

    @pytest.fixture(autouse=True)
    def _embedded(self, engine: Engine) -> None:
        self.engine = engine

    def make(self, **options: Any) -> AnyDestination:
        return self.engine.destination(**options)

    def run(self, statement: str) -> None:
        self.engine.do(statement)

    def rows(self, table: str, columns: str = "id") -> list[tuple[Any, ...]]:
        return sorted(self.engine.ask(f"SELECT {columns} FROM {table} SETTINGS final = 1"))
