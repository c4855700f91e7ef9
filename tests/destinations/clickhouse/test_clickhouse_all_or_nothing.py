"""All rows or none on ClickHouse, which has no transactions: everything is tried in a table of its own first."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.destinations.contract import AnyDestination
from penstock.testing.all_or_nothing import AllOrNothingContract
from tests.destinations.clickhouse.conftest import Engine


class TestClickhouseWhole(AllOrNothingContract):
    @pytest.fixture(autouse=True)
    def _tables(self, engine: Engine) -> None:
        self.engine = engine
        for table in ("small", "large"):
            columns = "id Int64, kind String, amount Int64, CONSTRAINT positive CHECK amount > 0"
            engine.do(f"CREATE TABLE {table} ({columns}) ENGINE = MergeTree ORDER BY id")

    def make(self, **options: Any) -> AnyDestination:
        return self.engine.destination(**{"table": "{{ kind }}", "adopt": ["small", "large"], **options})

    def ids(self, table: str) -> list[int]:
        return [row[0] for row in self.engine.ask(f"SELECT id FROM {table} ORDER BY id")]
