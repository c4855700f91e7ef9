"""What every destination owes, by the one for addEvents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.destinations.contract import AnyDestination
from penstock.destinations.dataset.config import DatasetConfig
from penstock.destinations.dataset.destination import DatasetDestination
from penstock.testing.destination import ReadableContract
from tests.simulators.dataset import TOKEN, DatasetServer, dataset_server


class TestDataset(ReadableContract):
    @pytest.fixture(autouse=True)
    def server(self) -> Iterator[DatasetServer]:
        with dataset_server() as running:
            self._server = running
            yield running

    def make(self, tmp_path: Path) -> AnyDestination:
        return DatasetDestination(DatasetConfig.model_validate({"url": self._server.url, "token": TOKEN}))

    def ids(self, destination: AnyDestination) -> list[int]:
        return [event["attrs"]["id"] for event in self._server.events]
