"""Spark reading the log as a stream into a sink that does nothing: against Parquet files, and a bare Arrow source."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from bench.measure import Comparison, Contender, Goal, Role, Setting, by_turns
from bench.records import as_batch, texts
from penstock.engine.session import build_session
from penstock.log.config import LogConfig
from penstock.log.local import LocalLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORD_BYTES = 350
FRAME = 2000
FILE_RECORDS = 500_000
CORES = 2
GOAL_RATE = 300_000
GOAL_SHARE = 0.5


def run(setting: Setting) -> list[Comparison]:
    records, rounds = setting.choose(3_000_000, 400_000), setting.choose(5, 1)
    build(setting.folder, records)
    spark = build_session("bench", f"local[{CORES}]", setting.folder / "spark", {_PROGRESS: "1000"})
    try:
        return [_compared(spark, setting.folder, records, rounds)]
    finally:
        spark.stop()


_PROGRESS = "spark.sql.streaming.numRecentProgressUpdates"


def _compared(spark: SparkSession, folder: Path, records: int, rounds: int) -> Comparison:
    from bench.bare_source import BareSource
    from penstock.log.spark import register

    register(spark)
    spark.dataSource.register(BareSource)
    checkpoints = (folder / f"checkpoint-{number}" for number in itertools.count())
    parquet = spark.read.parquet(str(folder / "parquet")).schema
    limit = {"maxRecordsPerTrigger": str(FILE_RECORDS)}

    def log() -> DataFrame:
        return spark.readStream.format("penstock_log").options(path=str(folder / "log"), **limit).load()

    def files() -> DataFrame:
        return spark.readStream.schema(parquet).option("maxFilesPerTrigger", CORES).parquet(str(folder / "parquet"))

    def bare() -> DataFrame:
        return spark.readStream.format(BareSource.name()).options(path=str(folder / "bare"), **limit).load()

    def rate(source: Callable[[], DataFrame]) -> float:
        return records / batch_seconds(source(), next(checkpoints), records)

    figures = by_turns(
        [
            Contender(Role.US, "penstock_log", partial(rate, log)),
            Contender(Role.PEER, "Spark's own stream of Parquet files with the same records", partial(rate, files)),
            Contender(Role.LIMIT, "a Python source that yields Arrow batches from mapped memory", partial(rate, bare)),
        ],
        rounds,
        warm_up=1,
    )
    name, unit = "spark_read", "records/s"
    us, share = figures[0].value, Comparison(name, unit, figures).ratio or 0.0
    goal = Goal(f">= {GOAL_RATE:,}/s and >= {GOAL_SHARE:.0%} of the limit", us >= GOAL_RATE and share >= GOAL_SHARE)
    note = (
        f"{records:,} records of {RECORD_BYTES} bytes of data, all columns, in batches of {FILE_RECORDS:,}, local[{CORES}]; "
        "seconds are Spark's own, of all batches from planning to commit, without its start"
    )
    return Comparison(name, unit, figures, goal, (note,))


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
    """The same records three times: in a log, as Parquet files, as Arrow files."""
    for name in ("parquet", "bare"):
        (folder / name).mkdir(parents=True)
    log = LocalLog(folder / "log", LogConfig(fsync="never"))
    with log.writer("web") as writer:
        data = as_batch(texts(min(records, 100_000), RECORD_BYTES))
        for first in range(0, records, FRAME):
            writer.append(data.slice(first % data.num_rows, FRAME))
    for number, stretch in enumerate(_stretches(records, FILE_RECORDS // CORES)):
        batches = list(log.read(0, stretch.start, stretch.stop))
        pq.write_table(pa.Table.from_batches(batches), folder / "parquet" / f"{number:04d}.parquet")
        with pa.ipc.new_file(folder / "bare" / f"{number:04d}.arrow", batches[0].schema) as file:
            for batch in batches:
                file.write_batch(batch)


def _stretches(records: int, size: int) -> Iterator[range]:
    for first in range(0, records, size):
        yield range(first, min(records, first + size))
