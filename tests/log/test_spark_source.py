"""The log read by Spark, as a stream and as a batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from penstock.log.local_log import LocalLog
from penstock.log.spark_source import LogSource, LogStreamReader, StretchPartition
from penstock.record import records
from tests.contract.log import config
from tests.log.samples import number, numbered, rows


@pytest.fixture
def log(tmp_path: Path) -> LocalLog:
    log = LocalLog(tmp_path / "log", config(segment_bytes=20_000))
    append(log, "web", range(100))
    append(log, "files", range(1000, 1020))
    return log


def append(log: LocalLog, source: str, numbers: range) -> None:
    with log.writer(source) as writer:
        for first in range(numbers.start, numbers.stop, 10):
            writer.append(numbered(range(first, min(first + 10, numbers.stop))))


class Batches:
    """What ``foreachBatch`` was given: per batch, (partition, offset, number) of its records, sorted."""

    def __init__(self) -> None:
        self.seen: list[list[tuple[int, int, int]]] = []

    def __call__(self, frame: DataFrame, batch: int) -> None:
        found = frame.select("partition", "offset", "data").collect()
        self.seen.append(sorted((row.partition, row.offset, number(bytes(row.data))) for row in found))

    @property
    def all(self) -> list[tuple[int, int, int]]:
        return [row for batch in self.seen for row in batch]


def run(spark: SparkSession, log: LocalLog, checkpoint: Path, **options: object) -> Batches:
    """Run a stream over all that is there."""
    batches = Batches()
    reader = spark.readStream.format("penstock_log").option("path", str(log.directory))
    for name, value in options.items():
        reader = reader.option(name, str(value))
    writer = reader.load().writeStream.foreachBatch(batches).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    query.awaitTermination()
    return batches


def batch(spark: SparkSession, log: LocalLog, **options: object) -> list[tuple[int, int, int]]:
    reader = spark.read.format("penstock_log").option("path", str(log.directory))
    for name, value in options.items():
        reader = reader.option(name, str(value))
    found = reader.load().select("partition", "offset", "data").collect()
    return sorted((row.partition, row.offset, number(bytes(row.data))) for row in found)


WEB = [(0, n, n) for n in range(100)]
FILES = [(1, n, 1000 + n) for n in range(20)]


def test_a_record_is_the_same_in_spark_and_in_the_log(spark: SparkSession, log: LocalLog) -> None:
    frame = spark.read.format("penstock_log").option("path", str(log.directory)).option("sources", "web").load()
    table = frame.orderBy("offset").toArrow()
    assert [r for b in table.to_batches() for r in records(b)] == rows(log)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, WEB + FILES),
        ({"sources": "files"}, FILES),
        ({"startingOffsets": '{"0": 95}', "endingOffsets": '{"0": 97, "1": 0}'}, WEB[95:97]),
        (
            {"sources": "web", "startingTimestamp": "2030-01-01T00:00:30Z", "endingTimestamp": "2030-01-01T00:00:33Z"},
            WEB[30:33],
        ),
        ({"sources": "web", "startingTimestamp": "1893456095000"}, WEB[95:]),
        ({"sources": "web", "endingTimestamp": "1893456003500"}, WEB[:4]),
        ({"startingOffsets": '{"0": 99}', "endingTimestamp": "2030-01-01T00:00:00Z"}, []),
        ({"startingOffsets": "latest"}, []),
    ],
)
def test_a_batch_reads_a_range_of_offsets_or_times(
    spark: SparkSession, log: LocalLog, options: dict[str, str], expected: list[tuple[int, int, int]]
) -> None:
    assert batch(spark, log, **options) == expected


def test_a_stream_takes_no_more_than_its_limit_and_all_in_the_end(
    spark: SparkSession, log: LocalLog, tmp_path: Path
) -> None:
    batches = run(spark, log, tmp_path / "checkpoint", maxRecordsPerTrigger=50)
    assert [len(b) for b in batches.seen] == [50, 50, 20]
    assert sorted(batches.all) == WEB + FILES


def test_a_stream_goes_on_from_its_checkpoint_and_takes_up_new_partitions(
    spark: SparkSession, log: LocalLog, tmp_path: Path
) -> None:
    assert sorted(run(spark, log, tmp_path / "checkpoint").all) == WEB + FILES
    append(log, "web", range(100, 105))
    append(log, "late", range(7, 9))
    again = run(spark, log, tmp_path / "checkpoint", startingOffsets="latest")
    assert again.all == [(0, n, n) for n in range(100, 105)] + [(2, 0, 7), (2, 1, 8)]


def test_a_batch_that_was_not_finished_is_replayed_as_it_was(
    spark: SparkSession, log: LocalLog, tmp_path: Path
) -> None:
    first = run(spark, log, tmp_path / "checkpoint", maxRecordsPerTrigger=30)
    (tmp_path / "checkpoint" / "commits" / str(len(first.seen) - 1)).unlink()
    (tmp_path / "checkpoint" / "commits" / f".{len(first.seen) - 1}.crc").unlink(missing_ok=True)
    append(log, "web", range(100, 110))
    again = run(spark, log, tmp_path / "checkpoint", maxRecordsPerTrigger=3)
    assert again.seen[0] == first.seen[-1]
    assert again.all[len(first.seen[-1]) :] == [(0, n, n) for n in range(100, 110)]


def test_finished_offsets_become_the_holds_of_the_consumer(spark: SparkSession, log: LocalLog, tmp_path: Path) -> None:
    run(spark, log, tmp_path / "other")
    assert log.holds.get() == {}
    run(spark, log, tmp_path / "checkpoint", consumer="warehouse", maxRecordsPerTrigger=60)
    first = log.holds.get()["warehouse"]
    assert first
    assert all(offset <= log.bounds(partition).end for partition, offset in first.items())
    append(log, "web", range(100, 110))
    run(spark, log, tmp_path / "checkpoint", consumer="warehouse")
    assert log.holds.get()["warehouse"] == {0: 100, 1: 20}


class CountingReader(LogStreamReader):
    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, StretchPartition)
        count = sum(batch.num_rows for batch in super().read(partition))
        yield pa.record_batch({"partition": [partition.stretch.partition], "records": [count]})


class CountingSource(LogSource):
    """Yields counts instead of records."""

    @classmethod
    def name(cls) -> str:
        return "counting_log"

    def schema(self) -> StructType:
        return StructType().add("partition", "long").add("records", "long")

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return CountingReader(self.read_options)


def test_a_subclass_changes_what_tasks_yield(spark: SparkSession, log: LocalLog, tmp_path: Path) -> None:
    spark.dataSource.register(CountingSource)
    seen: list[tuple[int, int]] = []

    def take(frame: DataFrame, _: int) -> None:
        seen.extend((row.partition, row.records) for row in frame.collect())

    frame = spark.readStream.format("counting_log").option("path", str(log.directory)).load()
    query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert sorted(seen) == [(0, 100), (1, 20)]
