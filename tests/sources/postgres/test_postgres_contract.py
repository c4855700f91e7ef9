"""The PostgreSQL source keeps the contract of all sources: a line that it is fed is a row of a table."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from penstock.record import Op, Record
from penstock.sources.contract import SourceContext
from penstock.testing.source import ReaderContract, log_records
from tests.sources.postgres.rig import Rig


class TestPostgresSource(ReaderContract):
    type_name = "postgres"
    exactly_once = True
    namespace = "public.fed"

    @pytest.fixture(autouse=True)
    def _database(self, rig: Rig) -> None:
        self.rig = rig
        rig.ask("CREATE TABLE fed (n int PRIMARY KEY, price numeric(8,2))")

    def config(self, folder: Path) -> str:
        return json.dumps({"url": self.rig.url, "tables": "public.fed"})

    def feed(self, folder: Path, lines: list[bytes]) -> bool:
        rows = [(row["n"], row["price"]) for row in map(json.loads, lines)]
        with psycopg.connect(self.rig.url) as connection:
            connection.cursor().executemany("INSERT INTO fed VALUES (%s, %s)", rows)
        return True

    def taken(self, context: SourceContext) -> list[Record]:
        return [record for record in log_records(context.log_dir) if record.op not in (Op.NOOP, Op.COMMAND)]
