"""Tables mirrored into a DuckDB file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from penstock.destinations.duckdb.config import DuckdbConfig
from penstock.destinations.duckdb.destination import DuckdbDestination
from tests.contract.mirror import MirrorContract, Row, Target


class DuckdbTarget(Target):
    def __init__(self, path: Path) -> None:
        self.path = path

    def destination(self, **options: Any) -> DuckdbDestination:
        return DuckdbDestination(DuckdbConfig.model_validate({"path": self.path, **options}))

    def run(self, statement: str) -> None:
        with duckdb.connect(self.path) as connection:
            connection.execute(statement)

    def rows(self, table: str = "users", order: str = "1") -> list[Row]:
        with duckdb.connect(self.path) as connection:
            found = connection.execute(f"SELECT * FROM {table} ORDER BY {order}")
            names = [column[0] for column in found.description]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def columns(self, table: str = "users") -> dict[str, str]:
        with duckdb.connect(self.path) as connection:
            query = "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? ORDER BY column_index"
            return dict(connection.execute(query, [table]).fetchall())


class TestDuckdbMirror(MirrorContract):
    text, bigint = "VARCHAR", "BIGINT"

    @pytest.fixture
    def target(self, tmp_path: Path) -> Target:
        return DuckdbTarget(tmp_path / "mirror.duckdb")
