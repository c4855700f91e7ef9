"""The Spark source of a route: in each task the log's reader yields batches, and the route's task consumes them.

A route of Arrow steps alone runs entirely here: Spark sees one report per task. A route with a Spark step gets its
records from here, after the Arrow steps that come before it; one with a holding step gets what that found in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.engine.delivery.log_gaps import Gap, gap_error
from penstock.engine.delivery.task import run_steps, run_task
from penstock.engine.delivery.task_report import REPORT_SCHEMA
from penstock.engine.route_plan import RoutePlan
from penstock.engine.stateful.scan_task import run_scan
from penstock.engine.stateful.shards import PACKED_SCHEMA
from penstock.log.local_log import LocalLog
from penstock.log.read_ranges import ReadOptions, Stretch, offsets_from_json, read_options
from penstock.log.spark_source import LogBatchReader, LogStreamReader, StretchPartition
from penstock.record import RECORD_SCHEMA


def route_source(plan: RoutePlan, use: str = "route") -> type[DataSource]:
    """Builds a data source for one route and one ``use`` of it. It is pickled to the tasks by value, so options show
    nothing of the config."""
    # Computed here: a process that only plans would load every step for it.
    yields = PACKED_SCHEMA if plan.holding else RECORD_SCHEMA if plan.rest else REPORT_SCHEMA

    class RouteSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return f"penstock_{use}_{plan.name}"

        def schema(self) -> StructType:
            return from_arrow_schema(yields)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return RouteReader(read_options(self.options), plan)

        def reader(self, schema: StructType) -> DataSourceReader:
            return RangeReader(read_options(self.options), plan)

    return RouteSource


class RouteReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the log as its own stream does, and yields what the tasks make of the records."""

    def __init__(self, options: ReadOptions, plan: RoutePlan) -> None:
        self._log = LogStreamReader(options)
        self._plan = plan

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Refuses a batch whose first records are gone: the log's own reader would begin after them."""
        starting, starts = self._log.options.starting, self._log.starts(start)
        done = starting if isinstance(starting, dict) else {}
        for partition, stop in offsets_from_json(end).items():
            # Spark may ask again for what is committed; that may be gone.
            first = max(starts.get(partition, 0), done.get(partition, 0))
            oldest = self._log.log.bounds(partition).oldest
            if first < min(stop, oldest):
                raise gap_error(Gap(self._plan.name, partition, first, oldest - 1))
        return _with_sources(self._log.log, self._log.partitions(start, end))

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return _run_task(self._plan, self._log.log, partition)

    def initialOffset(self) -> dict[str, int]:
        return self._log.initialOffset()

    def getDefaultReadLimit(self) -> ReadLimit:
        return self._log.getDefaultReadLimit()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return self._log.latestOffset(start, limit)

    def reportLatestOffset(self) -> dict[str, int]:
        return self._log.reportLatestOffset()

    def prepareForTriggerAvailableNow(self) -> None:
        self._log.prepareForTriggerAvailableNow()

    def commit(self, end: dict[str, int]) -> None:
        self._log.commit(end)


class RangeReader(DataSourceReader):
    """The same for a fixed range: a part of a batch that is staged again."""

    def __init__(self, options: ReadOptions, plan: RoutePlan) -> None:
        self._log = LogBatchReader(options)
        self._plan = plan

    def partitions(self) -> Sequence[InputPartition]:
        return _with_sources(self._log.log, self._log.partitions())

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return _run_task(self._plan, self._log.log, partition)


class OwnedPartition(InputPartition):
    """One task's share, with the name of the source that it is from."""

    def __init__(self, stretch: Stretch, source: str) -> None:
        super().__init__(stretch)
        self.stretch = stretch
        self.source = source


def _with_sources(log: LocalLog, partitions: Sequence[StretchPartition]) -> Sequence[InputPartition]:
    owners = log.partitions()
    return [OwnedPartition(each.stretch, owners[each.stretch.partition].source) for each in partitions]


def _run_task(plan: RoutePlan, log: LocalLog, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
    """The rows of a Spark task: its report, or what the first step in Spark works on."""
    if not isinstance(partition, OwnedPartition):
        return  # there was nothing to read
    stretch = partition.stretch
    batches = log.read(stretch.partition, stretch.start, stretch.end)
    if plan.holding:
        yield from run_scan(plan, log, batches, stretch, partition.source)
    elif plan.rest:
        name = f"head-{stretch.partition}-{stretch.start}-{stretch.end}"
        yield from run_steps(plan, batches, name, plan.rest[0].label, stretch)
    else:
        yield run_task(plan, batches, stretch).to_batch()
