"""State in a DuckDB file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, settings

from penstock.destinations.state.store.places import DuckdbPlace
from tests.destinations.state.joined_contract import JoinedContract, check_together_as_alone, together_and_alone
from tests.destinations.state.store_contract import Row, StoreContract, Target, change, row


class File(Target):
    def ask(self, query: str) -> list[tuple[Any, ...]]:
        assert isinstance(self.place, DuckdbPlace)
        with duckdb.connect(str(self.place.path)) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return File(DuckdbPlace(tmp_path / "state.duckdb"))


class TestDuckdbStore(StoreContract, JoinedContract):
    def test_text_keeps_its_null_character(self, target: Target) -> None:
        target.write(change([row("a\0b", "c\0d")]))
        assert target.rows() == [("hub1", "a\0b", "c\0d")]


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@together_and_alone
def test_what_is_written_together_ends_as_alone(target: Target, bundles: list[list[list[Row]]]) -> None:
    check_together_as_alone(target, bundles)
