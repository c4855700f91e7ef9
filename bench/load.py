"""From the log into DuckDB through a whole route, and flattening by itself: for information, there is no goal."""

from __future__ import annotations

import itertools
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import median

import duckdb
import pyarrow as pa
import pyarrow.json as arrow_json

from bench import processes
from bench.measure import Comparison, Contender, Role, Setting, by_turns, seconds_of
from bench.processes import ROUTE, SOURCE, TABLE, Project
from bench.records import as_batch, wide_events
from penstock.config.loading import load
from penstock.engine.pipeline import Pipeline
from penstock.flatten import flatten
from penstock.log.config import LogConfig
from penstock.log.local_log import LocalLog

EVENT_BYTES = 811
LEAVES = 25
FRAME = 2000
BATCH = 16_000
WORKERS = 2


def run(setting: Setting) -> list[Comparison]:
    events = list(wide_events(setting.choose(100_000, 20_000), EVENT_BYTES))
    return [flattening(events, setting.choose(5, 2)), delivery(setting, events)]


def flattening(events: list[bytes], rounds: int) -> Comparison:
    batches = [pa.array(events[at : at + BATCH], pa.binary()) for at in range(0, len(events), BATCH)]
    lines = [pa.py_buffer(b"\n".join(events[at : at + BATCH])) for at in range(0, len(events), BATCH)]
    columns = flatten(batches[0]).table.num_columns
    if columns != LEAVES:
        raise RuntimeError(f"the events have {columns} leaves, not {LEAVES}")
    one_core = arrow_json.ReadOptions(use_threads=False, block_size=64 * 2**20)

    def parse(text: pa.Buffer) -> pa.Table:
        return arrow_json.read_json(pa.BufferReader(text), read_options=one_core).flatten()

    def ours() -> float:
        return len(events) / seconds_of(lambda: [flatten(batch) for batch in batches])

    def peer() -> float:
        return len(events) / seconds_of(lambda: [parse(text) for text in lines])

    figures = by_turns(
        [
            Contender(Role.US, "penstock.flatten", ours),
            Contender(Role.PEER, "pyarrow.json on one core (no rules for names, mixed types or bad lines)", peer),
        ],
        rounds,
        warm_up=1,
    )
    note = f"events of {EVENT_BYTES} bytes with {LEAVES} leaves, in batches of {BATCH:,}, one core"
    return Comparison("flatten", "events/s", figures, notes=(note,))


def delivery(setting: Setting, events: list[bytes]) -> Comparison:
    copies, rounds = setting.choose(10, 2), setting.choose(3, 1)
    total = copies * len(events)
    folders = (setting.folder / f"round-{number}" for number in itertools.count())
    lines = setting.folder / "events.ndjson"
    with lines.open("wb") as file:
        for _ in range(copies):
            file.writelines(event + b"\n" for event in events)
    later: list[float] = []

    def route() -> float:
        project = processes.write_project(next(folders))
        fill(project.log, events, copies)
        whole, without_first = deliver(project, total)
        later.append(without_first)
        return whole

    def duckdb_alone() -> float:
        folder = next(folders)
        folder.mkdir()
        return total / seconds_of(partial(load_lines, lines, folder / "warehouse.duckdb", total))

    figures = by_turns(
        [
            Contender(Role.US, "log -> route -> DuckDB, `penstock run --once`", route),
            Contender(Role.PEER, "DuckDB's own read_json_auto of the same lines into a table", duckdb_alone),
        ],
        rounds,
    )
    notes = [f"{total:,} events of {EVENT_BYTES} bytes, from the start of the first batch to the last commit"]
    if all(later):
        notes.append(f"without the first batch, which starts the Python workers: {median(later):,.0f} events/s")
    return Comparison("load", "events/s", figures, notes=tuple(notes))


def fill(log_dir: Path, events: list[bytes], copies: int) -> None:
    """A log as the collector's workers leave it."""
    log = LocalLog(log_dir, LogConfig(fsync="never"))
    batch = as_batch(events)
    for worker in range(WORKERS):
        with log.writer(SOURCE, worker) as writer:
            for _ in range(worker, copies, WORKERS):
                for first in range(0, batch.num_rows, FRAME):
                    writer.append(batch.slice(first, FRAME))


def deliver(project: Project, total: int) -> tuple[float, float]:
    """Events per second of the whole run, and of all batches but the first (0 if there was no other)."""
    command = [sys.executable, "-m", "penstock.cli.main", "run", "--once", "-c", str(project.config)]
    subprocess.run(command, check=True, capture_output=True)
    with duckdb.connect(str(project.warehouse), read_only=True) as connection:
        rows = connection.execute(f"SELECT count(*) FROM {TABLE}").fetchall()[0][0]
    if rows != total:
        raise RuntimeError(f"{rows:,} rows arrived, not {total:,}")
    pipeline = Pipeline.open(load(project.config), create=False)
    last, *_, first = [*(batches := pipeline.ledger.batches(ROUTE, last=10_000)), batches[-1]]
    pipeline.ledger.close()
    between = last.committed_at - first.committed_at
    return total / (between + first.seconds), (total - first.items) / between if between else 0.0


def load_lines(lines: Path, warehouse: Path, total: int) -> None:
    with duckdb.connect(str(warehouse)) as connection:
        connection.execute(
            f"CREATE TABLE {TABLE} AS SELECT * FROM read_json_auto('{lines}', format='newline_delimited')"
        )
        if connection.execute(f"SELECT count(*) FROM {TABLE}").fetchall() != [(total,)]:
            raise RuntimeError("DuckDB did not load all lines")
