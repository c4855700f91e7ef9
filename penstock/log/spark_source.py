"""The log as a Spark data source, ``penstock_log``: as a stream with admission control, and as a batch.

    penstock.log.spark_source.register(spark)
    spark.readStream.format("penstock_log").option("path", "data/log").option("maxRecordsPerTrigger", 100_000).load()
    spark.read.format("penstock_log").option("path", "data/log").option("startingTimestamp", "2030-01-31").load()

| option | means |
|---|---|
| `path` | the log's directory |
| `sources` | only partitions of these sources, separated by commas |
| `startingOffsets` | `earliest` (default), `latest` or JSON `{"0": 12}`, for a stream without a checkpoint |
| `startingTimestamp` | start at the first record not before this time, ISO or milliseconds since 1970 |
| `endingOffsets`, `endingTimestamp` | for a batch: stop before these |
| `maxRecordsPerTrigger`, `maxBytesPerTrigger` | how much one batch of a stream takes, over all partitions |
| `consumer` | the name under which finished offsets are noted as holds, so that retention may pass them |
| `fixedRange` | JSON `{"start": {...}, "end": {...}}`: a batch that starts there ends there |
| `tasks` | into how many tasks a batch is cut (default: number of cores) |

A range of offsets yields the same records whenever it is read. The log is released in ``commit`` alone.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.log.local_log import LocalLog
from penstock.log.read_ranges import (
    ReadOptions,
    Stretch,
    first_offsets,
    last_offsets,
    next_offsets,
    offsets_from_json,
    offsets_to_json,
    read_options,
    stretches,
)
from penstock.log.record_order import Offsets, ends
from penstock.record import RECORD_SCHEMA

__all__ = ["LogBatchReader", "LogSource", "LogStreamReader", "Stretch", "StretchPartition", "register"]


class StretchPartition(InputPartition):
    """One task's share."""

    def __init__(self, stretch: Stretch) -> None:
        super().__init__(stretch)
        self.stretch = stretch


class _TaskReader:
    """What a task does, in a stream as in a batch. Holds no open file, so it travels to the task as it is."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.log = LocalLog(options.path)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, StretchPartition):
            # Spark runs one task without a partition where there is none to read.
            return iter(())
        stretch = partition.stretch
        return self.log.read(stretch.partition, stretch.start, stretch.end)


class LogStreamReader(_TaskReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._target: Offsets | None = None

    def initialOffset(self) -> dict[str, int]:
        return offsets_to_json(first_offsets(self.log, self.options))

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.max_records is not None:
            return ReadMaxRows(self.options.max_records)
        if self.options.max_bytes is not None:
            return ReadMaxBytes(self.options.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        first, options = self.starts(start), self.options
        if options.fixed is not None and options.fixed.begins_at(first):
            return offsets_to_json(first | options.fixed.end)
        unlimited = isinstance(limit, ReadAllAvailable)
        end = next_offsets(
            self.log,
            first,
            self._target if self._target is not None else ends(self.log, options.sources),
            None if unlimited else options.max_records,
            None if unlimited else options.max_bytes,
        )
        return offsets_to_json(end)

    def reportLatestOffset(self) -> dict[str, int]:
        return offsets_to_json(ends(self.log, self.options.sources))

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = ends(self.log, self.options.sources)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[StretchPartition]:
        cut = stretches(self.log, self.starts(start), offsets_from_json(end), self.options.tasks)
        return [StretchPartition(stretch) for stretch in cut]

    def starts(self, start: dict[str, int]) -> Offsets:
        """Where a batch begins. Spark does not know of partitions that came after its last batch: those begin where
        ``startingOffsets`` says, or with their first record."""
        starting = self.options.starting
        return (starting if isinstance(starting, dict) else {}) | offsets_from_json(start)

    def commit(self, end: dict[str, int]) -> None:
        if self.options.consumer is not None:
            self.log.holds.set(self.options.consumer, offsets_from_json(end))


class LogBatchReader(_TaskReader, DataSourceReader):
    def partitions(self) -> Sequence[StretchPartition]:
        first, last = first_offsets(self.log, self.options), last_offsets(self.log, self.options)
        return [StretchPartition(stretch) for stretch in stretches(self.log, first, last, self.options.tasks)]


class LogSource(DataSource):
    """Registered as ``penstock_log``."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.read_options = read_options(options)

    @classmethod
    def name(cls) -> str:
        return "penstock_log"

    def schema(self) -> StructType:
        return from_arrow_schema(RECORD_SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        return LogBatchReader(self.read_options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return LogStreamReader(self.read_options)


def register(spark: SparkSession) -> None:
    """Make ``format("penstock_log")`` known to a session."""
    spark.dataSource.register(LogSource)
