"""What every destination owes, over real databases: each event of the suite is the state of a source of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from penstock.destinations.contract import AnyDestination, Batch, Part
from penstock.destinations.state.config import StateConfig
from penstock.destinations.state.destination import StateDestination
from penstock.record import Record, entries, placed
from penstock.testing.crash import crash_at
from penstock.testing.destination import RepeatableContract, Staging, batch, numbered
from penstock.testing.large_batch import LARGE
from penstock.testing.memory import measure_growth
from tests.support.database import Database

KINDS = [{"name": "things", "priority": 0, "table": "things", "rows": "/items", "key": ["id"]}]


def envelope(data: bytes | None) -> bytes | None:
    """The event as the only row of the state of a source; what is no event as it is."""
    try:
        row = json.loads(data or b"")
        source = f"hub{row['id']}"
    except (ValueError, KeyError, TypeError):
        return data
    return json.dumps(
        {"source": source, "kind": "things", "version": "0.1", "data": {"items": [row]}}, ensure_ascii=False
    ).encode()


class StateStaging(Staging):
    def stage(self, data: Sequence[bytes | None], partition: int = 0, first: int = 0, size: int = 10_000) -> list[Part]:
        return super().stage([envelope(each) for each in data], partition, first, size)


class StateContract(RepeatableContract):
    @pytest.fixture
    def staging(self, destination: AnyDestination, tmp_path: Path) -> Staging:
        return StateStaging(destination, tmp_path / "stage")

    def test_two_batches_follow_each_other(self, destination: AnyDestination, staging: Staging) -> None:
        """Of the same sources: what they report again is not needed."""
        first = destination.write(batch(0), staging.stage(numbered(range(3))))
        second = destination.write(batch(1), staging.stage(numbered(range(4)), first=3))
        assert (first.rows, second.rows, second.tables[0].skipped) == (3, 1, {"conflated": 3})

    def test_a_large_batch_does_not_take_memory_with_it(self, destination: AnyDestination, staging: Staging) -> None:
        destination.write(batch(0), staging.stage(numbered([1])))
        text = "x" * 4_000
        stager = destination.stager(staging.directory, {})
        with measure_growth() as to_stage:
            for number in range(LARGE // 400_000):
                rows = [{"id": f"{number}/{row}", "text": text} for row in range(100)]
                bundle = {"source": f"large{number}", "kind": "things", "version": "0.1", "data": {"items": rows}}
                stager.add(placed(entries([Record(json.dumps(bundle).encode())]), 0, number))
            parts = stager.finish()
        with measure_growth() as to_write:
            receipt = destination.write(Batch("ledger-a", "shop", 1, {0: (0, 200)}), parts)
        assert receipt.rows == LARGE // 400_000
        assert to_stage.bytes < LARGE
        assert to_write.bytes < self.most_memory_to_write

    @pytest.mark.parametrize("point", ["destination.writing", "destination.committed"])
    def test_what_a_crash_left_unwritten_is_written_and_the_rest_is_not_written_again(
        self, point: str, destination: AnyDestination, staging: Staging
    ) -> None:
        parts = staging.stage(numbered(range(3)))
        with crash_at(point):
            destination.write(batch(), parts)
        again = type(destination)(destination.config)
        receipt = again.write(batch(), parts)
        assert receipt.rows == 3
        assert self.ids(destination) == [0, 1, 2]


class TestDuckdb(StateContract):
    most_memory_to_write = 4 * LARGE

    def make(self, tmp_path: Path) -> AnyDestination:
        return StateDestination(StateConfig.model_validate({"path": tmp_path / "state.duckdb", "kinds": KINDS}))

    def ids(self, destination: AnyDestination) -> list[int]:
        with duckdb.connect(destination.config.path, read_only=True) as connection:
            return sorted(row[0] for row in connection.execute("SELECT id FROM things").fetchall())


class TestPostgres(StateContract):
    @pytest.fixture
    def destination(self, database: Database) -> AnyDestination:
        self.database = database
        options: dict[str, Any] = {
            "url": database.dsn,
            "database_schema": database.schema,
            "kinds": KINDS,
            "workers": 2,
        }
        return StateDestination(StateConfig.model_validate(options))

    def ids(self, destination: AnyDestination) -> list[int]:
        return sorted(row[0] for row in self.database.ask("SELECT id FROM things"))
