"""The destination, held to what every destination with transactions owes."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from penstock_example.sqlite.config import SqliteConfig
from penstock_example.sqlite.destination import SqliteDestination

from penstock.errors import TransientError
from penstock.testing.destination import Staging, TransactionalContract, batch, numbered


class TestSqlite(TransactionalContract):
    def make(self, tmp_path: Path) -> SqliteDestination:
        return SqliteDestination(SqliteConfig(path=tmp_path / "new" / "shop.sqlite"))

    def ids(self, destination: SqliteDestination) -> list[int]:
        with sqlite3.connect(destination.config.path) as database:
            found = database.execute("SELECT json_extract(event, '$.id') FROM events ORDER BY rowid")
            return [number for (number,) in found]


def test_a_file_that_somebody_has_locked_is_tried_again_later(tmp_path: Path) -> None:
    destination = SqliteDestination(SqliteConfig(path=tmp_path / "shop.sqlite"))
    parts = Staging(destination, tmp_path / "stage").stage(numbered([1]))
    with sqlite3.connect(destination.config.path, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(TransientError, match="locked"):
            destination.write(batch(), parts)
    assert destination.write(batch(), parts).rows == 1
