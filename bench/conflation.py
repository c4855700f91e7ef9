"""Bundles from the log into PostgreSQL when nearly all of them are conflated away, against Spark's own ``max_by``.

``penstock run --once`` reads bundles of many sources, of which one in a hundred is the newest of its batch, source and
kind, and writes those. In the same run, by turns: a bare Spark that reads the same records from Parquet files and takes
``max_by`` of their data, per batch, source and kind, into a sink that does nothing. It writes nothing, checks nothing
and forgets everything; it is what choosing the newest costs Spark itself. The tables are looked at afterwards.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from bench.measure import Comparison, Contender, Goal, Role, Setting, by_turns, seconds_of
from bench.processes import SOURCE
from bench.state_rows import SETTINGS
from bench.to_the_end import Delivered, run_once, write_project
from penstock.engine.spark.jvm import StartingJvm
from penstock.engine.spark.session_settings import session_settings
from penstock.engine.spark.spark_session import build_session
from penstock.log.config import LogConfig
from penstock.log.local_log import LocalLog
from penstock.record import ENTRY_SCHEMA
from tests.support.ports import free_port
from tests.support.postgres import postgres

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS = ("clusters", "policies", "nodes", "heartbeats", "alerts")
BUNDLE_BYTES = 350
FRAME = 2000
REPEATS = 100
"""So many bundles of each source and kind are in a batch: all but one are conflated away."""
CORES = 2
WORKERS = 4
GOAL_RATE = 100_000
GOAL_SHARE = 0.5
PATIENCE = 600.0


@dataclass(frozen=True)
class Sizes:
    sources: int
    batches: int
    rounds: int

    @property
    def groups(self) -> int:
        return self.sources * len(KINDS)

    @property
    def batch(self) -> int:
        return self.groups * REPEATS

    @property
    def bundles(self) -> int:
        return self.batch * self.batches


def run(setting: Setting) -> list[Comparison]:
    sizes = Sizes(20, 2, 1) if setting.quick else Sizes(1000, 4, 3)
    # The server's user has to be able to reach its folder.
    setting.folder.chmod(0o711)
    fill(setting.folder, sizes)
    with postgres(fsync=True, settings=SETTINGS, parent=setting.folder) as url:
        fleet = Fleet(setting.folder, url, sizes)
        figures = by_turns(
            [
                Contender(Role.US, "from the log into PostgreSQL", fleet.conflate),
                Contender(Role.LIMIT, "Spark's `max_by` over Parquet files of the same records", fleet.max_by),
            ],
            sizes.rounds,
        )
    share = figures[0].value / figures[1].value
    goal = Goal(
        f">= {GOAL_RATE:,}/s and >= {GOAL_SHARE:.0%} of the limit",
        figures[0].value >= GOAL_RATE and share >= GOAL_SHARE,
    )
    note = (
        f"{sizes.bundles:,} bundles of {BUNDLE_BYTES} bytes of {sizes.sources:,} sources and {len(KINDS)} kinds in"
        f" batches of {sizes.batch:,}, 99 % of which are conflated away; {WORKERS} writers, fsync on, local[{CORES}];"
        " without the first batch, which starts the Python workers"
    )
    return [Comparison("conflation", "bundles/s", figures, goal, (note, *fleet.notes))]


@dataclass
class Fleet:
    """The records of many sources, in a log and in Parquet files, and who chooses the newest of them."""

    folder: Path
    url: str
    sizes: Sizes
    notes: list[str] = field(default_factory=list)
    _runs: Iterator[int] = field(default_factory=itertools.count)

    def conflate(self) -> float:
        """Bundles per second of Penstock, from reading to the ledger's commit."""
        number = next(self._runs)
        folder = self.folder / f"run-{number}"
        # Hard links: a run only ever adds files to a log.
        shutil.copytree(self.folder / "log", folder / "data" / "log", copy_function=os.link)
        ran = run_once(self._project(folder, f"run_{number}"), self.sizes.bundles, PATIENCE)
        self._check(ran, f"run_{number}")
        shutil.rmtree(folder)
        seconds = ", ".join(f"{each:.1f}" for each in ran.batches)
        memory = ", ".join(f"{part} {mib:,.0f}" for part, mib in ran.peak.items())
        self.notes.append(f"round {number + 1}: seconds of the batches {seconds}; peak MiB {memory}")
        return ran.later or ran.rate

    def max_by(self) -> float:
        """The same records, by a Spark that is started for it; without its first batch."""
        scratch = self.folder / f"spark-{next(self._runs)}"
        settings = session_settings("bench", f"local[{CORES}]", scratch, {})
        scratch.mkdir()
        spark = build_session(settings, StartingJvm(settings, scratch, self.folder / "spark-traces.log"))
        try:
            seconds = [self._max_by_of(spark, number) for number in range(self.sizes.batches)]
        finally:
            spark.stop()
        return self.sizes.batch * (self.sizes.batches - 1) / sum(seconds[1:])

    def _max_by_of(self, spark: SparkSession, batch: int) -> float:
        newest = max_by(spark.read.parquet(str(self.folder / "parquet" / f"{batch:04d}.parquet")))
        return seconds_of(lambda: newest.write.format("noop").mode("overwrite").save())

    def _project(self, folder: Path, schema: str) -> Path:
        token = {"id": "hubs", "server_secret": "unused"}
        source = {"type": "http", "listen": f"127.0.0.1:{free_port()}", "tokens": [token]}
        kinds = [
            {"name": kind, "priority": number, "table": kind, "rows": "/items", "key": ["id"]}
            for number, kind in enumerate(KINDS)
        ]
        destination = {"type": "state", "url": self.url, "database_schema": schema, "workers": WORKERS, "kinds": kinds}
        return write_project(folder, source, destination, self.sizes.batch)

    def _check(self, ran: Delivered, schema: str) -> None:
        """Everything is counted, and every table has the newest of every source."""
        written = self.sizes.groups * self.sizes.batches
        totals = ran.totals
        if (totals.items, totals.loaded, totals.skipped) != (self.sizes.bundles, written, self.sizes.bundles - written):
            raise AssertionError(f"of {self.sizes.bundles:,} bundles {written:,} should have been written: {totals}")
        newest = self.sizes.batches * REPEATS - 1
        with psycopg.connect(self.url) as connection:
            for kind in KINDS:
                query = f"SELECT count(*), min(version), max(version) FROM {schema}.{kind}"
                found = connection.execute(query.encode()).fetchone()
                if found != (self.sizes.sources, newest, newest):
                    raise AssertionError(f"{kind}: {found}, not {self.sizes.sources} rows of version {newest}")
            connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())


def max_by(records: DataFrame) -> DataFrame:
    """The data of the newest bundle of each source and kind, as somebody would write it for Spark."""
    from pyspark.sql import functions as f

    headers, version = f.col("headers"), f.split(f.col("headers")["version"], r"\.")
    order = f.struct(version[0].cast("long").alias("incarnation"), version[1].cast("long").alias("generation"))
    return records.groupBy(headers["source"], headers["kind"]).agg(f.max_by("data", order))


def fill(folder: Path, sizes: Sizes) -> None:
    """The same bundles in a log, in frames as a busy collector makes them, and as one Parquet file per batch."""
    (folder / "parquet").mkdir()
    log = LocalLog(folder / "log", LogConfig(fsync="never"))
    with log.writer(SOURCE) as writer:
        for batch in range(sizes.batches):
            records = pa.Table.from_batches(_batch_of(sizes, batch))
            for frame in records.to_batches(max_chunksize=FRAME):
                writer.append(frame)
            pq.write_table(records, folder / "parquet" / f"{batch:04d}.parquet", row_group_size=sizes.batch // CORES)


def _batch_of(sizes: Sizes, batch: int) -> Iterator[pa.RecordBatch]:
    """Every source reports every kind, again and again."""
    sources = [f"hub{number:04d}" for number in range(sizes.sources) for _ in KINDS]
    kinds = [*KINDS] * sizes.sources
    words = random.Random(batch).randbytes(100_000).hex()
    for generation in range(batch * REPEATS, (batch + 1) * REPEATS):
        start = f'{{"items":[{{"id":"one","version":{generation},"note":"'
        places = (place * 7919 % 199_000 for place in range(generation, generation + len(sources)))
        texts = [f"{start}{words[place : place + 400]}"[: BUNDLE_BYTES - 4] + '"}]}' for place in places]
        yield _records(sources, kinds, f"0.{generation}", texts)


def _records(sources: list[str], kinds: list[str], version: str, data: list[str]) -> pa.RecordBatch:
    count = len(sources)
    names = ("token", "source", "kind", "version")
    values = np.empty((count, len(names)), object)
    values[:, 0], values[:, 1], values[:, 2], values[:, 3] = "hubs", sources, kinds, version
    ends = pa.array(np.arange(0, count * len(names) + 1, len(names), dtype=np.int32))
    headers = pa.MapArray.from_arrays(ends, pa.array(names * count), pa.array(values.ravel(), pa.string()))
    times = pa.array(np.full(count, time.time_ns() // 1000)).cast(ENTRY_SCHEMA.field("timestamp").type)
    same = [pa.repeat(text, count) for text in (SOURCE, "insert", "sync")]
    columns = [times, *same, pa.nulls(count, pa.string()), headers, pa.array(data).cast(pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=ENTRY_SCHEMA)
