"""State in a DuckDB file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from penstock.destinations.state.store.places import DuckdbPlace
from tests.destinations.state.store_contract import StoreContract, Target, change, row


class File(Target):
    def ask(self, query: str) -> list[tuple[Any, ...]]:
        assert isinstance(self.place, DuckdbPlace)
        with duckdb.connect(str(self.place.path)) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return File(DuckdbPlace(tmp_path / "state.duckdb"))


class TestDuckdbStore(StoreContract):
    def test_text_keeps_its_null_character(self, target: Target) -> None:
        target.write(change([row("a\0b", "c\0d")]))
        assert target.rows() == [("hub1", "a\0b", "c\0d")]
