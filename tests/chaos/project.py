"""The pipeline from HTTP to DuckDB that is attacked while a client posts."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import psutil
import psycopg

from penstock.demo.sender import Client
from penstock.testing.waiting import HANG, eventually
from tests.chaos.running import Running
from tests.support.clock import SteppedClock
from tests.support.ports import free_port

SECRET = "demo"
ROUTE = "warehouse"
EACH, LATEST = "each", "latest"
"""Routes to PostgreSQL: the one makes each event a row, the other keeps the newest value of each key."""
TABLES = ("alpha", "beta", "gamma")
"""What the events are about: both routes have a table for each."""

_PIPELINE = """\
name: chaos
data_dir: ./data
sources:
  web: {{type: http, listen: "127.0.0.1:{port}", workers: 2, tokens: [{{id: site, client_secret: {secret}}}]}}
routes:
  warehouse:
    from: [web]
    steps: [{{python: {{file: steps.py, function: pass_on}}}}]
    step_timeout: 10s
    to: {{type: duckdb, path: ./warehouse.duckdb, table: events, mode: stream, every: 100ms}}
"""
_TO_POSTGRES = """\
  each:
    from: [web]
    to: {{type: postgres, url: "{url}", table: "each_{{{{ kind }}}}", mode: stream, every: 500ms, lock_timeout: 2s}}
  latest:
    from: [web]
    to:
      {{type: postgres, url: "{url}", table: "latest_{{{{ kind }}}}", primary_key: [id], mode: stream, every: 500ms,
       lock_timeout: 2s}}
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
    """``database``: the URL of a PostgreSQL that two more routes go to. ``pipeline`` has places for port and secret."""

    def __init__(self, folder: Path, faults: str = "", database: str | None = None, pipeline: str = _PIPELINE) -> None:
        self.port = free_port()
        self.database = database
        folder.mkdir(parents=True, exist_ok=True)
        self.clock = SteppedClock(folder)
        text = pipeline.format(port=self.port, secret=SECRET)
        if database is not None:
            text += _TO_POSTGRES.format(url=database)
        super().__init__(folder, text, faults, self.clock.environment)
        (folder / "steps.py").write_text(_STEPS)

    @property
    def routes(self) -> Sequence[str]:
        return (ROUTE,) if self.database is None else (ROUTE, EACH, LATEST)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def warehouse(self) -> Path:
        return self.folder / "warehouse.duckdb"

    def rows(self) -> dict[str, Counter[str]]:
        """Per route that makes each event a row, how often its target has each. Only while no engine runs."""
        with duckdb.connect(str(self.warehouse), read_only=True) as connection:
            found = connection.execute("SELECT eventn_ctx_event_id FROM events").fetchall()
        counts = {ROUTE: Counter(row[0] for row in found)}
        if self.database is not None:
            rows = [row for table in TABLES for row in self._select(f"SELECT eventn_ctx_event_id FROM each_{table}")]
            counts[EACH] = Counter(row[0] for row in rows)
        return counts

    def newest(self) -> dict[str, list[int]]:
        """Per key the values that the route which keeps the newest has in its tables."""
        values: dict[str, list[int]] = {}
        for table in TABLES if self.database is not None else ():
            for key, value in self._select(f"SELECT id, n FROM latest_{table}"):
                values.setdefault(key, []).append(int(value))
        return values

    def _select(self, statement: str) -> list[tuple[Any, ...]]:
        assert self.database is not None
        with psycopg.connect(self.database, autocommit=True) as connection:
            return connection.execute(statement.encode()).fetchall()

    def end(self) -> None:
        """Leave nothing running, not even what a killed supervisor has left behind."""
        left = [process for process in psutil.process_iter() if _clock_of(process) == str(self.clock.path)]
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=HANG)
        if self.process is not None:
            self.process.wait(HANG)

    def penstock(self, *words: str) -> str:
        """Run a verb to its end, which must be a good one, and return what it prints."""
        command = [sys.executable, "-m", "penstock.cli.main", *words, "-c", str(self.config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"penstock {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def wait_until_ready(self) -> None:
        def ready() -> bool:
            self.keep_up()
            return Client(self.port).ready()

        eventually(ready, f"the collector is ready (see {self.log})")


def _clock_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("PENSTOCK_CLOCK_FILE")
    except psutil.Error:
        return None
