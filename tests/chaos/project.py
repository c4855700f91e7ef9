"""The pipeline from HTTP to DuckDB that is attacked while a client posts."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import duckdb

from penstock.demo.sender import Client
from tests.chaos.running import Running
from tests.support.clock import SteppedClock
from tests.support.ports import free_port
from tests.support.waiting import eventually

SECRET = "demo"
ROUTE = "warehouse"

_PIPELINE = """\
name: chaos
data_dir: ./data
sources:
  web: {{type: http, listen: "127.0.0.1:{port}", workers: 2, tokens: [{{id: site, client_secret: {secret}}}]}}
routes:
  warehouse:
    from: [web]
    steps: [{{python: {{file: steps.py, function: pass_on}}}}]
    to: {{type: duckdb, path: ./warehouse.duckdb, table: events, mode: stream, every: 100ms}}
"""
_STEPS = """\
import os

import pyarrow as pa
import pyarrow.compute as pc


def pass_on(records: pa.Table) -> pa.Table:
    if pc.any(pc.match_substring(records.column("data"), '"deadly"')).as_py():
        os._exit(1)
    return records
"""


class Project(Running):
    def __init__(self, folder: Path, faults: str = "") -> None:
        self.port = free_port()
        folder.mkdir(parents=True, exist_ok=True)
        self.clock = SteppedClock(folder)
        super().__init__(folder, _PIPELINE.format(port=self.port, secret=SECRET), faults, self.clock.environment)
        (folder / "steps.py").write_text(_STEPS)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def warehouse(self) -> Path:
        return self.folder / "warehouse.duckdb"

    def rows(self) -> Counter[str]:
        """How often the warehouse has each event. Only while no engine runs."""
        with duckdb.connect(str(self.warehouse), read_only=True) as connection:
            return Counter(row[0] for row in connection.execute("SELECT eventn_ctx_event_id FROM events").fetchall())

    def penstock(self, *words: str) -> None:
        """Run a verb to its end, which must be a good one."""
        command = [sys.executable, "-m", "penstock.cli.main", *words, "-c", str(self.config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"penstock {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"

    def wait_until_ready(self) -> None:
        def ready() -> bool:
            self.keep_up()
            return Client(self.port).ready()

        eventually(ready, f"the collector is ready (see {self.log})")
