"""A PostgreSQL table into the log, against ``COPY TO`` of the same table.

Us: the source ``postgres``, run to its end in a process of its own, which has its imports: publication, slot and
snapshot, two connections that copy, every row as JSON in the log and on disk (``fsync: always``), the record that says
that the table is complete, and the changes that came meanwhile (none). The log is counted. Limit: one ``COPY .. TO
STDOUT`` in psql, which throws the bytes away. Both read from memory: the table has been read before the first round.
"""

from __future__ import annotations

import multiprocessing
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from pathlib import Path
from threading import Event

import psycopg

from bench.measure import Comparison, Contender, Goal, Role, Setting, by_turns, seconds_of
from bench.processes import SOURCE
from bench.transport import tables
from bench.transport.tables import TABLE
from penstock.log.local_log import LocalLog
from penstock.sources.contract import SourceContext
from penstock.sources.postgres.config import PostgresConfig
from penstock.sources.postgres.source import PostgresSource
from tests.support.postgres import LOGICAL, postgres

SETTINGS = {**LOGICAL, "shared_buffers": "1GB", "max_wal_size": "4GB"}
GOAL_SHARE = 0.4


def run(setting: Setting) -> Iterator[Comparison]:
    # The server's user has to be able to reach its folder.
    setting.folder.chmod(0o711)
    rows = setting.choose(2_000_000, 20_000)
    with postgres(fsync=True, settings=SETTINGS, parent=setting.folder) as url:
        size = tables.create(url, rows)
        copy = TableCopy(url, rows, setting.folder / "copy")
        figures = by_turns(
            [
                Contender(Role.US, "postgres source into the log", copy.into_log),
                Contender(Role.LIMIT, "psql, COPY TO STDOUT, bytes thrown away", copy.bare),
            ],
            setting.choose(3, 1),
            warm_up=1,
        )
    us, limit = figures
    share = us.value / limit.value
    yield Comparison(
        "transport, copy",
        "rows/s",
        figures,
        Goal(f">= {GOAL_SHARE:.0%} of the limit", share >= GOAL_SHARE),
        (
            f"{rows:,} rows of {size:.0f} bytes as COPY writes them and 9 columns of 8 types; every row counted in the"
            " log; fsync on, in the server and the log",
        ),
    )


class TableCopy:
    def __init__(self, url: str, rows: int, folder: Path) -> None:
        self._url, self._rows, self._folder = url, rows, folder
        self._rounds = count(1)

    def into_log(self) -> float:
        number = next(self._rounds)
        folder = self._folder / str(number)
        try:
            seconds = seconds_of_source(self._url, folder, slot=f"bench_{number}")
            found = log_end(folder)
            if found != self._rows + 2:  # the first record begins the copy, the last says that the table is complete
                raise RuntimeError(f"of {self._rows:,} rows {found - 2:,} are in the log")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            with psycopg.connect(self._url, autocommit=True) as connection:
                connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
        return self._rows / seconds

    def bare(self) -> float:
        command = ["psql", "-X", "-q", self._url, "-c", f"COPY {TABLE} TO STDOUT"]
        return self._rows / seconds_of(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))


def seconds_of_source(url: str, folder: Path, slot: str, copy: bool = True) -> float:
    """Run the source to its end in a process of its own, which has its imports when the clock starts."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_run_source, url, folder, slot, copy).result()


def log_end(folder: Path) -> int:
    """How many records the log has that the source wrote."""
    log = LocalLog(folder / "log")
    return sum(log.bounds(partition).end for partition in log.partitions())


def _run_source(url: str, folder: Path, slot: str, copy: bool) -> float:
    (folder / "state").mkdir(parents=True, exist_ok=True)
    context = SourceContext(SOURCE, folder / "log", "{}", folder / "state")
    options = {"url": url, "tables": [f"public.{TABLE}"], "slot": slot, "copy": copy}
    source = PostgresSource(PostgresConfig.model_validate(options), context)
    return seconds_of(lambda: source.run(Event(), once=True))
