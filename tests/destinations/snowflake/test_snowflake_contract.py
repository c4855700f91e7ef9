"""The promises of a destination with transactions, kept on ``fakesnow``."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.destinations.contract import AnyDestination
from penstock.destinations.snowflake.destination import SnowflakeDestination
from tests.contract.destination import TransactionalContract
from tests.destinations.snowflake.conftest import Account


class TestSnowflake(TransactionalContract):
    @pytest.fixture(autouse=True)
    def _account(self, account: Account) -> None:
        self.account = account

    def make(self, tmp_path: Path) -> SnowflakeDestination:
        return self.account.destination()

    def ids(self, destination: AnyDestination) -> list[int]:
        return [row[0] for row in self.account.ask("SELECT id FROM events")]
