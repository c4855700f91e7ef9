"""A Snowflake that is none: ``fakesnow`` runs the statements of the real driver's interface on DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fakesnow
import pytest
import snowflake.connector

from penstock.destinations.contract import Receipt
from penstock.destinations.snowflake.config import SnowflakeConfig
from penstock.destinations.snowflake.destination import SnowflakeDestination
from penstock.testing.destination import Staging, batch, events

LOGIN = {"account": "org-account", "user": "loader", "password": "secret", "database": "shop"}


class Account:
    def __init__(self) -> None:
        self._cursor = snowflake.connector.connect(**LOGIN | {"database": "SHOP"}, schema="PUBLIC").cursor()

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        self._cursor.execute(query)
        return [tuple(row) for row in self._cursor.fetchall()]

    def columns(self, table: str = "EVENTS") -> dict[str, str]:
        return {
            name: f"{kind}({precision},{scale})" if precision else kind
            for name, kind, precision, scale in self.ask(
                "SELECT column_name, data_type, numeric_precision, numeric_scale FROM information_schema.columns"
                f" WHERE table_name = '{table}' ORDER BY ordinal_position"
            )
        }

    def destination(self, **options: Any) -> SnowflakeDestination:
        return SnowflakeDestination(SnowflakeConfig.model_validate({**LOGIN, "adopt": ["events"], **options}))


@dataclass
class Warehouse:
    """A destination and the batches it was given so far."""

    destination: SnowflakeDestination
    staging: Staging
    number: int = 0

    def load(self, *documents: Any, first: int = 0) -> Receipt:
        parts = self.staging.stage(events(*documents), first=first)
        receipt = self.destination.write(batch(self.number), parts)
        self.number += 1
        return receipt


@pytest.fixture
def account() -> Iterator[Account]:
    with fakesnow.patch():
        yield Account()


@pytest.fixture
def warehouse(account: Account, tmp_path: Path) -> Any:
    def make(casts: dict[str, str] | None = None, **options: Any) -> Warehouse:
        destination = account.destination(**options)
        return Warehouse(destination, Staging(destination, tmp_path / "stage", casts))

    return make
