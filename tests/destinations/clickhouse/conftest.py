"""ClickHouse's embedded engine, one for all tests (a process can have one); each test has a database of its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client

from penstock.destinations.clickhouse.config import ClickhouseConfig
from penstock.destinations.clickhouse.destination import ClickhouseDestination
from penstock.destinations.contract import Receipt
from penstock.testing.destination import Staging, batch, events


@dataclass(frozen=True)
class Engine:
    """A database in the engine."""

    dsn: str
    client: Client
    database: str

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.client.query(query).result_rows]

    def do(self, statement: str) -> None:
        self.client.command(statement)

    def columns(self, table: str = "events") -> dict[str, str]:
        found = f"SELECT name, type FROM system.columns WHERE database = '{self.database}' AND table = '{table}'"
        return dict(self.ask(f"{found} ORDER BY position"))

    def destination(self, **options: Any) -> ClickhouseDestination:
        place = {"url": self.dsn, "database": self.database, "adopt": ["events"]}
        return ClickhouseDestination(ClickhouseConfig.model_validate({**place, **options}))


@dataclass
class Warehouse:
    """A destination and the batches it was given so far."""

    destination: ClickhouseDestination
    staging: Staging
    number: int = 0

    def load(self, *documents: Any, first: int = 0) -> Receipt:
        parts = self.staging.stage(events(*documents), first=first)
        receipt = self.destination.write(batch(self.number), parts)
        self.number += 1
        return receipt


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Client]]:
    dsn = f"chdb://{tmp_path_factory.mktemp('clickhouse')}"
    client = clickhouse_connect.get_client(dsn=dsn)
    yield dsn, client
    client.close()


@pytest.fixture
def engine(embedded: tuple[str, Client]) -> Iterator[Engine]:
    dsn, client = embedded
    name = f"t{uuid.uuid4().hex[:12]}"
    client.command(f"CREATE DATABASE {name}")
    client.command(f"USE {name}")
    yield Engine(dsn, client, name)
    client.command(f"DROP DATABASE {name}")


@pytest.fixture
def warehouse(engine: Engine, tmp_path: Path) -> Any:
    def make(casts: dict[str, str] | None = None, **options: Any) -> Warehouse:
        destination = engine.destination(**options)
        return Warehouse(destination, Staging(destination, tmp_path / "stage", casts))

    return make
