"""Spark reading the log as a stream into a sink that does nothing: against Parquet files, and a bare Arrow source."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from bench.measure import Comparison, Contender, Figure, Goal, Role, Setting, by_turns
from bench.records import as_batch, texts
from penstock.engine.spark.jvm import StartingJvm
from penstock.engine.spark.session_settings import session_settings
from penstock.engine.spark.spark_session import build_session
from penstock.log.config import LogConfig
from penstock.log.local_log import LocalLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORD_BYTES = 350
FRAME = 2000
SMALL_FRAME = 32
"""What single events from a few dozen connections come to: a frame per sync."""
SMALL_SHARE = 4
FILE_RECORDS = 500_000
CORES = 2
GOAL_RATE = 300_000
GOAL_SHARE = 0.5


def run(setting: Setting) -> list[Comparison]:
    records, rounds = setting.choose(3_000_000, 400_000), setting.choose(5, 1)
    build(setting.folder, records)
    scratch = setting.folder / "spark"
    settings = session_settings("bench", f"local[{CORES}]", scratch, {_PROGRESS: "1000"})
    scratch.mkdir(parents=True)
    spark = build_session(settings, StartingJvm(settings, scratch, setting.folder / "spark-traces.log"))
    try:
        return _compared(spark, setting.folder, records, rounds)
    finally:
        spark.stop()


_PROGRESS = "spark.sql.streaming.numRecentProgressUpdates"


def _compared(spark: SparkSession, folder: Path, records: int, rounds: int) -> list[Comparison]:
    from bench.bare_source import BareSource
    from penstock.log.spark_source import register

    register(spark)
    spark.dataSource.register(BareSource)
    checkpoints = (folder / f"checkpoint-{number}" for number in itertools.count())
    parquet = spark.read.parquet(str(folder / "parquet")).schema
    limit = {"maxRecordsPerTrigger": str(FILE_RECORDS)}

    def log(name: str) -> DataFrame:
        return spark.readStream.format("penstock_log").options(path=str(folder / name), **limit).load()

    def files() -> DataFrame:
        return spark.readStream.schema(parquet).option("maxFilesPerTrigger", CORES).parquet(str(folder / "parquet"))

    def bare() -> DataFrame:
        return spark.readStream.format(BareSource.name()).options(path=str(folder / "bare"), **limit).load()

    def rate(source: Callable[[], DataFrame], count: int = records) -> float:
        return count / batch_seconds(source(), next(checkpoints), count)

    large, small, *others = by_turns(
        [
            Contender(Role.US, "large", partial(rate, partial(log, "log"))),
            Contender(Role.US, "small", partial(rate, partial(log, "small"), records // SMALL_SHARE)),
            Contender(Role.PEER, "Spark's own stream of Parquet files with the same records", partial(rate, files)),
            Contender(Role.LIMIT, "a Python source that yields Arrow batches from mapped memory", partial(rate, bare)),
        ],
        rounds,
        warm_up=1,
    )
    note = (
        f"{records:,} records of {RECORD_BYTES} bytes in frames of {FRAME:,}, in batches of {FILE_RECORDS:,}, "
        f"local[{CORES}]; seconds are Spark's own, of all batches from planning to commit, without its start"
    )
    small_note = f"{records // SMALL_SHARE:,} of the records in frames of {SMALL_FRAME}, as single events make them"
    return [
        _judged("spark_read", (large, *others), note),
        _judged("spark_read, small frames", (small, *others), small_note),
    ]


def _judged(name: str, figures: tuple[Figure, ...], note: str) -> Comparison:
    us, share = figures[0].value, Comparison(name, "records/s", figures).ratio or 0.0
    goal = Goal(f">= {GOAL_RATE:,}/s and >= {GOAL_SHARE:.0%} of the limit", us >= GOAL_RATE and share >= GOAL_SHARE)
    return Comparison(name, "records/s", figures, goal, (note,))


def batch_seconds(frame: DataFrame, checkpoint: Path, records: int) -> float:
    """How long Spark says that it worked on the batches of a stream that runs to its end."""
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    batches = [progress for progress in query.recentProgress if progress.numInputRows]
    read = sum(progress.numInputRows for progress in batches)
    if read != records:
        raise RuntimeError(f"Spark read {read:,} records, not {records:,}")
    return sum(progress.durationMs["triggerExecution"] for progress in batches) / 1000


def build(folder: Path, records: int) -> None:
    """The same records in a log, as Parquet files, as Arrow files; and some in a log of small frames."""
    for name in ("parquet", "bare"):
        (folder / name).mkdir(parents=True)
    data = as_batch(texts(min(records, 100_000), RECORD_BYTES))
    log = fill(folder / "log", data, records, FRAME)
    fill(folder / "small", data, records // SMALL_SHARE, SMALL_FRAME)
    for number, stretch in enumerate(_stretches(records, FILE_RECORDS // CORES)):
        batches = list(log.read(0, stretch.start, stretch.stop))
        pq.write_table(pa.Table.from_batches(batches), folder / "parquet" / f"{number:04d}.parquet")
        with pa.ipc.new_file(folder / "bare" / f"{number:04d}.arrow", batches[0].schema) as file:
            for batch in batches:
                file.write_batch(batch)


def fill(folder: Path, data: pa.RecordBatch, records: int, frame: int) -> LocalLog:
    """A log of so many records, so many in a frame."""
    log = LocalLog(folder, LogConfig(fsync="never"))
    with log.writer("web") as writer:
        while writer.next_offset < records:
            first = writer.next_offset % data.num_rows
            writer.append(data.slice(first, min(frame, records - writer.next_offset)))
    return log


def _stretches(records: int, size: int) -> Iterator[range]:
    for first in range(0, records, size):
        yield range(first, min(records, first + size))
