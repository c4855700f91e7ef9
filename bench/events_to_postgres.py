"""A growing clickstream from the log into PostgreSQL, appended and merged by key, and into DuckDB.

In one run, by turns: Penstock, dlt with the same events, and the limit, which gets finished rows (see ``bare_copy``).
Every table is counted afterwards; a row too many or too few ends the benchmark. The memory of a run with four times the
events is compared with that of the others.

    python -m bench.events_to_postgres --events 4000000 --dlt-events 4000000 --rounds 1    # other sizes
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

import duckdb

from bench import clickstream
from bench.bare_copy import Finished, columns_of, copy_and_merge, copy_rows, export, session
from bench.bare_read import json_types, load_lines
from bench.clickstream import FRAME, KEY, LEAVES, PARTITIONS, Clickstream, Written
from bench.dlt_load import DATASET, Disposition, Settings, Warehouse, seconds_of_dlt
from bench.measure import (
    Comparison,
    Contender,
    Figure,
    Goal,
    Role,
    Setting,
    by_turns,
    machine,
    markdown,
    ours,
    seconds_of,
)
from bench.processes import SOURCE, TABLE
from bench.to_the_end import Delivered, Options, deliver
from penstock.config.pipeline_config import RouteConfig
from tests.support.postgres import postgres

SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "4GB"}
BATCHES = 2
"""So many batches make the usual number of events; the first one settles the types that later events conflict with."""
DEFAULT_BATCH: int = RouteConfig.model_fields["max_records"].default
"""What a route takes at once if nobody says otherwise. DuckDB is loaded so: conflicts within a batch are settled by the
column's type, and it is PostgreSQL that has them with the table's."""
GOAL_DLT = 10
GOAL_SHARE = {Disposition.APPEND: 0.5, Disposition.MERGE: 0.4}
GOAL_DUCKDB = 200_000
GOAL_GROWTH = 1.15


@dataclass(frozen=True)
class Sizes:
    events: int
    many: int
    """Events of the run that shows whether memory grows with their number."""
    dlt_events: int
    rounds: int

    @property
    def batch(self) -> int:
        """Records in a batch: whole frames of all partitions, so that the first batch is what was written first."""
        whole = PARTITIONS * FRAME
        return max(1, self.events // BATCHES // whole) * whole


def run(setting: Setting) -> list[Comparison]:
    # The server's user has to be able to reach its folder.
    setting.folder.chmod(0o711)
    sizes = Sizes(20_000, 80_000, 4_000, 1) if setting.quick else Sizes(1_000_000, 4_000_000, 100_000, 3)
    return measured(setting.folder, sizes)


def measured(folder: Path, sizes: Sizes) -> list[Comparison]:
    with postgres(fsync=True, settings=SETTINGS, parent=folder) as url:
        bench = Bench(folder, sizes, url)
        return [*bench.into_postgres(), bench.into_duckdb(), *bench.memory()]


@dataclass
class Bench:
    """The events of one benchmark, and all the ways to load them."""

    folder: Path
    sizes: Sizes
    url: str
    delivered: dict[Disposition, list[Delivered]] = field(default_factory=lambda: {kind: [] for kind in Disposition})

    def __post_init__(self) -> None:
        self._folders = (self.folder / f"load-{number}" for number in itertools.count())
        self._events = self._write("events", self.sizes.events)
        self._fewer = self._write("fewer", self.sizes.dlt_events)

    def into_postgres(self) -> list[Comparison]:
        self._deliver(Disposition.APPEND, self._events)
        finished = export(self.url, KEY, self.folder / "finished")
        return [self._compared(kind, finished) for kind in Disposition]

    def into_duckdb(self) -> Comparison:
        runs: list[Delivered] = []

        def us() -> float:
            options: Options = {"type": "duckdb", "path": "./warehouse.duckdb", "table": TABLE}
            with self._room() as folder:
                runs.append(deliver(self._events.log, folder, options, DEFAULT_BATCH, self._events.events))
                _check_duckdb(folder / "warehouse.duckdb", TABLE, self._events)
            return runs[-1].rate

        def dlt(settings: Settings = Settings.PLAIN) -> float:
            with self._room() as folder:
                database = folder / "warehouse.duckdb"
                seconds = self._dlt(folder, Warehouse.DUCKDB, str(database), Disposition.APPEND, settings)
                _check_duckdb(database, f"{DATASET}.{TABLE}", self._fewer)
            return self._fewer.events / seconds

        types = json_types(self._events.lines)

        def read_json() -> float:
            with self._room() as folder:
                database = folder / "warehouse.duckdb"
                seconds = seconds_of(partial(load_lines, self._events.lines, types, database))
                _check_duckdb(database, TABLE, self._events)
            return self._events.events / seconds

        figures = by_turns(
            [
                Contender(Role.US, "log -> route -> DuckDB", us),
                Contender(Role.PEER, f"dlt as it comes, {self._fewer.events:,} of such events", dlt),
                Contender(Role.LIMIT, "DuckDB's read_json of the lines, types given, objects not flattened", read_json),
            ],
            self.sizes.rounds,
        )
        goal = Goal(f">= {GOAL_DUCKDB:,}/s", figures[0].value >= GOAL_DUCKDB)
        notes = (_against("DuckDB", figures), _tuned(dlt(Settings.TUNED), figures), *_told(runs))
        return Comparison("events_to_duckdb, append", "events/s", figures, goal, notes)

    def memory(self) -> list[Comparison]:
        """What a run needs at its peak, with the usual number of events and with many more."""
        if not self.sizes.many:
            return []
        many = self._write("many", self.sizes.many, as_lines=False)
        return [self._growth(kind, many) for kind in Disposition]

    def _compared(self, kind: Disposition, finished: Finished) -> Comparison:
        limits: dict[Disposition, tuple[str, Callable[[str, Finished], float]]] = {
            Disposition.APPEND: ("one COPY of the finished rows (CSV)", copy_rows),
            Disposition.MERGE: (
                "COPY and one INSERT .. ON CONFLICT DO UPDATE of the finished rows, duplicates taken out beforehand",
                copy_and_merge,
            ),
        }
        name, copy = limits[kind]

        def us() -> float:
            self.delivered[kind].append(self._deliver(kind, self._events))
            return self.delivered[kind][-1].rate

        def dlt(settings: Settings = Settings.PLAIN) -> float:
            self._empty()
            where = self.url.replace("@", ":none@", 1)  # dlt asks for a password, also where the server does not
            with self._room() as folder:
                seconds = self._dlt(folder, Warehouse.POSTGRES, where, kind, settings)
            self._check(f"{DATASET}.{TABLE}", _rows(kind, self._fewer))
            return self._fewer.events / seconds

        def bare() -> float:
            self._empty()
            seconds = copy(self.url, finished)
            self._check(TABLE, _rows(kind, self._events))
            return self._events.events / seconds

        figures = by_turns(
            [
                Contender(Role.US, "log -> route -> PostgreSQL", us),
                Contender(Role.PEER, f"dlt as it comes, {kind}, {self._fewer.events:,} of such events", dlt),
                Contender(Role.LIMIT, name, bare),
            ],
            self.sizes.rounds,
        )
        share = Comparison("", "", figures).ratio or 0.0
        met = share >= GOAL_SHARE[kind] and figures[0].value >= GOAL_DLT * figures[1].value
        goal = Goal(f">= {GOAL_SHARE[kind]:.0%} of the limit and >= {GOAL_DLT} x dlt", met)
        tuned = _tuned(dlt(Settings.TUNED), figures)
        notes = (_against(kind, figures), tuned, *_told(self.delivered[kind]), self._described, self._server)
        return Comparison(f"events_to_postgres, {kind}", "events/s", figures, goal, notes)

    def _growth(self, kind: Disposition, many: Written) -> Comparison:
        usual = median(run.peak_mib for run in self.delivered[kind])
        run = self._deliver(kind, many)
        growth = run.peak_mib / usual
        parts = ", ".join(f"{part} {mib:,.0f}" for part, mib in run.peak.items())
        note = (
            f"peak of all processes together with {many.events:,} events, at {run.rate:,.0f} events/s: {parts} MiB"
            " (resident; pages that processes share count in each)"
        )
        change = f"{usual:,.0f} MiB with {self._events.events:,} events, x {growth:.2f} with {many.events:,}"
        goal = Goal(f"<= {GOAL_GROWTH:.2f} x that of {self._events.events:,} events", growth <= GOAL_GROWTH)
        return Comparison(
            f"events_to_postgres, {kind}, memory", "MiB", ours("peak", run.peak_mib), goal, (change, note)
        )

    def _deliver(self, kind: Disposition, events: Written) -> Delivered:
        self._empty()
        options: Options = {"type": "postgres", "url": self.url, "table": TABLE}
        if kind is Disposition.MERGE:
            options = {**options, "primary_key": [KEY]}
        with self._room() as folder:
            run = deliver(events.log, folder, options, self.sizes.batch, events.events)
        self._check(TABLE, _rows(kind, events))
        columns = len(columns_of(self.url))
        if columns != events.columns + 1:
            raise RuntimeError(f"the table has {columns} columns, not {events.columns + 1}")
        if kind is Disposition.APPEND:
            self._check(f"{TABLE} WHERE _unmapped IS NOT NULL", events.conflicts)
        return run

    def _dlt(self, folder: Path, warehouse: Warehouse, where: str, kind: Disposition, settings: Settings) -> float:
        return seconds_of_dlt(self._fewer.lines, self._fewer.events, folder, warehouse, where, kind, settings)

    def _write(self, name: str, events: int, as_lines: bool = True) -> Written:
        opening = min(self.sizes.batch, events // BATCHES)
        return clickstream.write(Clickstream(events, opening), self.folder / name, SOURCE, as_lines)

    @contextmanager
    def _room(self) -> Iterator[Path]:
        """A folder for one load, gone afterwards: a benchmark makes gigabytes."""
        folder = next(self._folders)
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder)

    def _empty(self) -> None:
        """Nobody finds anything of whoever came before, nor waits for its pages to be written."""
        with session(self.url) as connection:
            for schema in ("public", DATASET, f"{DATASET}_staging"):
                connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
            connection.execute("CREATE SCHEMA public")
            connection.execute("CHECKPOINT")

    def _check(self, rows_of: str, expected: int) -> None:
        with session(self.url) as connection:
            ((found,),) = connection.execute(f"SELECT count(*) FROM {rows_of}").fetchall()
        _compare(found, expected, rows_of)

    @property
    def _described(self) -> str:
        events = self._events
        return (
            f"{events.events:,} events of {events.bytes / events.events:.0f} bytes with {LEAVES} leaves;"
            f" {len(events.extra)} more columns come up in 5% of them; {events.conflicts:,} type conflicts,"
            f" {events.events - events.distinct:,} duplicates by key; in batches of {self.sizes.batch:,};"
            " every table counted"
        )

    @property
    def _server(self) -> str:
        with session(self.url) as connection:
            ((version,),) = connection.execute("SHOW server_version").fetchall()
        settings = ", ".join(f"{name}={value}" for name, value in SETTINGS.items())
        return f"PostgreSQL {version} on the same machine for all of them: fsync=on, {settings}, other settings default"


def _check_duckdb(database: Path, table: str, events: Written) -> None:
    with duckdb.connect(database, read_only=True) as connection:
        ((rows,),) = connection.execute(f"SELECT count(*) FROM {table}").fetchall()
        _compare(rows, events.events, table)


def _compare(found: int, expected: int, what: str) -> None:
    if found != expected:
        raise RuntimeError(f"there are {found:,} rows of {what}, not {expected:,}")


def _rows(kind: Disposition, events: Written) -> int:
    return events.distinct if kind is Disposition.MERGE else events.events


def _against(name: str, figures: tuple[Figure, ...]) -> str:
    us, dlt, limit = figures
    return f"{name}: {us.value / dlt.value:.1f} x dlt, {us.value / limit.value:.0%} of the limit"


def _tuned(rate: float, figures: tuple[Figure, ...]) -> str:
    return f"dlt at its fastest settings (see bench/dlt_load.py): {rate:,.0f}/s; we are {figures[0].value / rate:.1f} x"


def _told(runs: list[Delivered]) -> list[str]:
    """What the figure leaves out."""
    notes = [
        f"from the start of the first batch to the last commit ({median(run.seconds for run in runs):.1f} s,"
        f" {len(runs[0].batches)} batches); the whole command with the JVM's start:"
        f" {median(run.command_seconds for run in runs):.1f} s"
    ]
    later = [run.later for run in runs if run.later is not None]
    if later:
        notes.append(f"without the first batch, which starts the Python workers: {median(later):,.0f} events/s")
    notes.append(f"peak of all our processes: {median(run.peak_mib for run in runs):,.0f} MiB resident")
    return notes


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.events_to_postgres")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--many", type=int, default=4_000_000, help="events of the run that shows memory; 0: none")
    parser.add_argument("--dlt-events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    given = parser.parse_args(arguments)
    title = machine()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=given.folder) as name:
        folder = Path(name)
        folder.chmod(0o711)
        sizes = Sizes(given.events, given.many, given.dlt_events, given.rounds)
        print(f"{title}\n\n{markdown(measured(folder, sizes))}")


if __name__ == "__main__":
    main(sys.argv[1:])
