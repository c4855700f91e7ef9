"""The Spark source of a route: in each task the log's reader yields batches, and the route's task consumes them.

A route of Arrow steps alone runs entirely here: Spark sees one report per task. A route with a Spark step gets its
records from here, after the Arrow steps that come before it.
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
from penstock.log.read_ranges import ReadOptions, offsets_from_json, read_options
from penstock.log.spark_source import LogBatchReader, LogStreamReader, StretchPartition
from penstock.record import RECORD_SCHEMA


def route_source(plan: RoutePlan, use: str = "route") -> type[DataSource]:
    """Builds a data source for one route and one ``use`` of it. It is pickled to the tasks by value, so options show
    nothing of the config."""
    # Computed here: a process that only plans would load every step for it.
    yields = RECORD_SCHEMA if plan.rest else REPORT_SCHEMA

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
        starting = self._log.options.starting
        done = starting if isinstance(starting, dict) else {}
        for partition, stop in offsets_from_json(end).items():
            # Spark may ask again for what is committed; that may be gone.
            first = max(start.get(str(partition), 0), done.get(partition, 0))
            oldest = self._log.log.bounds(partition).oldest
            if first < min(stop, oldest):
                raise gap_error(Gap(self._plan.name, partition, first, oldest - 1))
        return self._log.partitions(start, end)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return _run_task(self._plan, partition, self._log.read(partition))

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
        return self._log.partitions()

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return _run_task(self._plan, partition, self._log.read(partition))


def _run_task(
    plan: RoutePlan, partition: InputPartition | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of a Spark task: its report, or the records for the first Spark step."""
    if not isinstance(partition, StretchPartition):
        return  # there was nothing to read
    stretch = partition.stretch
    if plan.rest:
        name = f"head-{stretch.partition}-{stretch.start}-{stretch.end}"
        yield from run_steps(plan, batches, name, plan.rest[0].label, stretch)
    else:
        yield run_task(plan, batches, stretch).to_batch()
