"""The promises that every destination makes, and those that ClickHouse can make beyond."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.destinations.clickhouse.destination import ClickhouseDestination
from penstock.destinations.contract import AnyDestination
from tests.contract.destination import RepeatableContract
from tests.destinations.clickhouse.conftest import Engine


class TestClickhouse(RepeatableContract):
    @pytest.fixture(autouse=True)
    def _embedded(self, engine: Engine) -> None:
        self.engine = engine

    def make(self, tmp_path: Path) -> ClickhouseDestination:
        return self.engine.destination()

    def ids(self, destination: AnyDestination) -> list[int]:
        return [row[0] for row in self.engine.ask("SELECT id FROM events SETTINGS max_threads = 1")]
