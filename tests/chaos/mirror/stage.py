"""What is attacked: two servers, a DuckDB file, and the pipeline between them."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg

from penstock.config.loading import load
from penstock.engine.operate.status import route_status
from penstock.engine.pipeline import Pipeline
from penstock.record import Mode
from penstock.testing.source import log_records
from tests.chaos.mirror.comparing import Difference, difference, duckdb_content, postgres_content
from tests.chaos.mirror.tables import TABLES
from tests.chaos.running import ENGINE, JVM, PYTHON_WORKER, SOURCE, SUPERVISOR, Running
from tests.support.postgres import LOGICAL, NO_SETTINGS, Server

SOURCE_SERVER = "source's server"
TARGET_SERVER = "target's server"
LOCK = "lock on the DuckDB file"
AROUND = (SOURCE, SOURCE_SERVER, TARGET_SERVER, LOCK)
"""What is hit all the time; the source if it has read something since the last time, as who dies young is started again
ever later."""
ENGINES = (ENGINE, PYTHON_WORKER, JVM, SUPERVISOR)
"""What is hit when every route has delivered something since the last time."""
ROLES = (*AROUND, *ENGINES)
ROUTES = ("to_postgres", "to_duckdb")

_PIPELINE = """\
name: mirror
data_dir: ./data
sources:
  shop: {{type: postgres, url: "{source}", tables: ["public.*"], discover: 1s}}
routes:
  to_postgres:
    from: shop
    to: {{type: postgres, url: "{target}", database_schema: mirror, load: mirror}}
  to_duckdb:
    from: shop
    to: {{type: duckdb, path: ./mirror.duckdb, load: mirror}}
"""
_HOLD = """\
import sys, time, duckdb
while True:
    try:
        held = duckdb.connect(sys.argv[1])
        break
    except duckdb.Error:
        time.sleep(0.01)
time.sleep(float(sys.argv[2]))
"""


class Stage:
    """Servers are started by ``start``; ``Running`` is the pipeline. ``end`` leaves nothing behind but ``folder``."""

    def __init__(self, folder: Path, faults: str = "") -> None:
        self.folder = folder
        self.source, self.target = Server(), Server()
        self.running = Running(folder, _PIPELINE.format(source=self.source.url, target=self.target.url), faults)
        self.duckdb = folder / "mirror.duckdb"
        self.ended_by_itself: list[int] = []
        self._holder: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.source.start(settings=LOGICAL)
        self.target.start()

    def end(self) -> None:
        if self.running.process is not None:
            self.running.end()
        if self._holder is not None:
            self._holder.kill()
            self._holder.wait()
        for server in (self.source, self.target):
            with contextlib.suppress(subprocess.CalledProcessError):  # it does not run
                server.kill()
            server.remove()

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.source.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def keep_up(self) -> None:
        """Start the pipeline again if it was killed. That it ends without being killed must not be."""
        process = self.running.process
        if process is not None and process.poll() not in (None, -9):
            self.ended_by_itself.append(process.returncode)
        self.running.keep_up()

    def disturb(self, role: str, rng: random.Random) -> None:
        self.keep_up()
        if role == SOURCE_SERVER:
            _fell(self.source, LOGICAL, rng)
        elif role == TARGET_SERVER:
            _fell(self.target, NO_SETTINGS, rng)
        elif role == LOCK:
            if self._holder is not None:
                self._holder.wait()
            seconds = str(rng.uniform(1.0, 4.0))
            self._holder = subprocess.Popen([sys.executable, "-c", _HOLD, str(self.duckdb), seconds])
        else:
            self.running.kill_one(rng, role)

    def batches(self) -> dict[str, int]:
        """How many batches each route has delivered."""
        pipeline = self._pipeline
        return {route: sum(batch.items > 0 for batch in pipeline.ledger.batches(route, last=10**6)) for route in ROUTES}

    def fired(self) -> list[str]:
        """The points at which a process has killed itself."""
        return [path.name for path in self.running.fired.iterdir()]

    def source_is_read(self) -> Callable[[], bool]:
        """Tells whether everything that is committed now at the source is in the log."""
        (end,) = self.ask("SELECT pg_current_wal_lsn()")[0]
        confirmed = f"SELECT confirmed_flush_lsn >= '{end}' FROM pg_replication_slots WHERE slot_name = 'penstock'"

        def is_read() -> bool:
            self.keep_up()
            return self.ask(confirmed) == [(True,)] and set(TABLES) <= self._copied()

        return is_read

    def lags(self) -> Mapping[str, int]:
        self.keep_up()
        return {route: route_status(self._pipeline, route).lag for route in ROUTES}

    def records(self) -> int:
        log = self._pipeline.log
        return sum(log.bounds(partition).end for partition in log.partitions())

    def differences(self) -> tuple[list[Difference], dict[str, int]]:
        """Where a mirror is not equal to the source; and how many rows each table has there."""
        found: list[Difference | None] = []
        rows: dict[str, int] = {}
        for table in TABLES:
            name = table.partition(".")[2]
            source = postgres_content(self.source.url, table)
            rows[name] = source.rows.total()
            found.append(
                difference(name, "PostgreSQL", source, postgres_content(self.target.url, f"mirror.{name}", source))
            )
            found.append(difference(name, "DuckDB", source, duckdb_content(self.duckdb, name, source)))
        return [one for one in found if one is not None], rows

    def penstock(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "penstock.cli.main", *arguments, "-c", str(self.running.config)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def books(self) -> dict[str, dict[str, Any]]:
        return {route["route"]: route for route in json.loads(self.penstock("status", "--json"))["routes"]}

    @cached_property
    def _pipeline(self) -> Pipeline:
        return Pipeline.open(load(self.running.config))

    def _copied(self) -> set[str]:
        return {r.namespace for r in log_records(self.running.folder / "data" / "log") if r.mode is Mode.COMPLETE}


def _fell(server: Server, settings: Mapping[str, str], rng: random.Random) -> None:
    if rng.random() < 0.5:
        server.kill()
    else:
        server.shoot()
    server.start(settings=settings)
