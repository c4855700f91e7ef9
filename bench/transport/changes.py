"""Changes of a PostgreSQL table, from the source through log and engine into a mirror in DuckDB: how many, how late.

``penstock run`` follows the table while a process of its own puts a steady load on it (see ``tables``). The rate counts
all changes from the first transaction to the moment at which the last of them can be queried: what piles up lowers it.

The delay of a change is the time from its writing at the source to its commit in DuckDB. DuckDB's file cannot be read
by others while the engine writes to it, so nobody can look for each row. Instead: every row that is inserted or updated
carries the server's clock, read in the statement, before the commit; the row is in the log, which says at which offset;
the ledger says when the batch of that offset was committed, after DuckDB had committed it. Both clocks are this
machine's, and both ends are on the outer side, so no delay is shown shorter than it was. Deletes carry no clock; they
are in the same transactions. When all is done the mirror is compared with the table, row by row.

``catching up``: the source alone, over changes that were made while it was away, against ``pg_recvlogical`` receiving
the same changes from another slot and throwing them away.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import orjson
import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from bench.measure import Comparison, Figure, Goal, Role, Setting, ours, seconds_of
from bench.processes import ROUTE, SOURCE, running, wait_for
from bench.transport import tables
from bench.transport.copying import SETTINGS, log_end, seconds_of_source
from bench.transport.tables import IN_A_TRANSACTION, TABLE, Load
from penstock.config.loading import load as load_config
from penstock.engine.pipeline import Pipeline
from tests.support.postgres import postgres

RATE = 16_000
GOAL_RATE = 15_000
GOAL_SECONDS = 3.0
BARE_SLOT = "bench_bare"

Seconds = npt.NDArray[np.float64]


def run(setting: Setting) -> Iterator[Comparison]:
    # The server's user has to be able to reach its folder.
    setting.folder.chmod(0o711)
    with postgres(fsync=True, settings=SETTINGS, parent=setting.folder) as url:
        tables.create(url, setting.choose(500_000, 5_000))
        yield from _sustained(url, setting)
        yield _catching_up(url, setting.folder / "backlog", setting.choose(600_000, 5_000))


def _sustained(url: str, setting: Setting) -> Iterator[Comparison]:
    seconds = setting.choose(60, 3)
    folder = setting.folder / "changes"
    folder.mkdir()
    config = _write_project(folder, url)
    command = ["-m", "penstock.cli.main", "run", "-c", str(config)]
    with running([command], folder) as (process,), _opened(config) as pipeline:

        def delivered(items: int) -> bool:
            return pipeline.ledger.totals(ROUTE).items == items

        rows = _rows(url)
        wait_for(lambda: delivered(rows + 1), "the copied rows", [process])
        warm_up = tables.finished(tables.put_load(url, RATE, setting.choose(10, 2)))
        before = rows + 1 + warm_up.changes
        wait_for(lambda: delivered(before), "the changes of the warm-up", [process])
        load = tables.finished(tables.put_load(url, RATE, seconds))
        wait_for(lambda: delivered(before + load.changes), "the last changes", [process])
        failed = pipeline.ledger.totals(ROUTE).failed
        batches = [b for b in pipeline.ledger.batches(ROUTE, last=100_000) if b.committed_at >= load.began]
        found = np.concatenate([np.empty(0), *delays(pipeline, load)])
        last = max(batch.committed_at for batch in batches)
    expected = load.changes // IN_A_TRANSACTION * (tables.UPDATES + tables.INSERTS)
    if failed or len(found) != expected:
        raise RuntimeError(f"{failed} changes failed; of {expected:,} rows with a clock {len(found):,} were found")
    compare(url, folder / "mirror.duckdb")
    rate = load.changes / (last - load.began)
    p50, p95, longest = (float(np.quantile(found, share)) for share in (0.5, 0.95, 1.0))
    yield Comparison(
        "transport, changes",
        "changes/s",
        ours("sustained", rate),
        Goal(f">= {GOAL_RATE:,}/s", rate >= GOAL_RATE),
        (
            f"{load.changes:,} changes by {tables.WRITERS} connections in transactions of {IN_A_TRANSACTION}"
            f" ({tables.UPDATES} updates, {tables.INSERTS} inserts, {tables.DELETES} deletes), {load.rate:,.0f}/s for"
            f" {load.seconds:.1f} s, the latest transaction {load.late:.2f} s late; {len(batches)} batches; afterwards"
            f" the mirror equals the table, {rows:,} rows",
        ),
    )
    yield Comparison(
        "transport, changes, p95 delay",
        "s",
        ours("from the row's clock to the ledger's commit", p95),
        Goal(f"<= {GOAL_SECONDS:g} s", p95 <= GOAL_SECONDS),
        (f"p50 {p50:.2f} s, longest {longest:.2f} s",),
    )


def _write_project(folder: Path, url: str) -> Path:
    mirror = {"type": "duckdb", "path": "./mirror.duckdb", "load": "mirror"}
    config = {
        "name": "bench",
        "data_dir": "./data",
        "sources": {SOURCE: {"type": "postgres", "url": url, "tables": [f"public.{TABLE}"]}},
        "routes": {ROUTE: {"from": [SOURCE], "to": mirror}},
    }
    path = folder / "pipeline.yaml"
    path.write_bytes(orjson.dumps(config))  # JSON is YAML
    return path


@contextmanager
def _opened(config: Path) -> Iterator[Pipeline]:
    pipeline = Pipeline.open(load_config(config))
    try:
        yield pipeline
    finally:
        pipeline.ledger.close()


def delays(pipeline: Pipeline, load: Load) -> Iterator[Seconds]:
    """Of every row that the load wrote with a clock: from that clock to the commit of its batch."""
    for batch in pipeline.ledger.batches(ROUTE, last=100_000):
        if batch.committed_at < load.began:
            continue
        for partition, (start, end) in batch.ranges.items():
            for records in pipeline.log.read(partition, start, end):
                written = clocks(records)
                yield batch.committed_at - written[written >= load.began]


def clocks(records: pa.RecordBatch) -> Seconds:
    """The clocks that rows carry, in seconds since the epoch; records without one are left out."""
    found = pc.extract_regex(records.column("data").cast(pa.string()), r'"at":"(?P<at>[^"]*)Z"')
    moments = pc.struct_field(found, "at").drop_null().cast(pa.timestamp("us"))
    return np.asarray(moments.cast(pa.int64())) / 1e6


def compare(url: str, mirror: Path) -> None:
    """Raise if the mirror is not the table, row by row."""
    columns = 'id, customer, name, price, version, "at", day, ok, note'
    with psycopg.connect(url) as connection, closing(duckdb.connect(str(mirror), read_only=True)) as copy:
        source = set(connection.execute(f"SELECT {columns} FROM {TABLE}").fetchall())
        target = copy.execute(f"SELECT {columns} FROM {TABLE}").fetchall()
    if len(target) != len(source) or set(target) != source:
        wrong = len(source.symmetric_difference(target))
        raise RuntimeError(f"the mirror has {len(target):,} rows, the table {len(source):,}; {wrong:,} differ")


def _catching_up(url: str, folder: Path, backlog: int) -> Comparison:
    slot = "bench_backlog"
    seconds_of_source(url, folder, slot, copy=False)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"SELECT pg_create_logical_replication_slot('{BARE_SLOT}', 'pgoutput')")
        before = log_end(folder)
        load = tables.change(url, rate=backlog, seconds=1.0)
        ((end,),) = connection.execute("SELECT pg_current_wal_lsn()::text").fetchall()
    us = load.changes / seconds_of_source(url, folder, slot, copy=False)
    if log_end(folder) - before != load.changes:
        raise RuntimeError(f"of {load.changes:,} changes {log_end(folder) - before:,} are in the log")
    command = [
        *("pg_recvlogical", "-d", url, "--slot", BARE_SLOT, "--start", "--no-loop", "--endpos", end, "-f", "/dev/null"),
        *("-o", "proto_version=1", "-o", "publication_names=penstock"),
    ]  # fmt: skip
    limit = load.changes / seconds_of(lambda: subprocess.run(command, check=True))
    return Comparison(
        "transport, changes, catching up",
        "changes/s",
        (
            Figure(Role.US, "postgres source into the log", (us,)),
            Figure(Role.LIMIT, "pg_recvlogical of the same changes, bytes thrown away", (limit,)),
        ),
        notes=(f"{load.changes:,} changes that were made while nobody followed; one round",),
    )


def _rows(url: str) -> int:
    with psycopg.connect(url) as connection:
        ((rows,),) = connection.execute(f"SELECT count(*) FROM {TABLE}").fetchall()
    return int(rows)
