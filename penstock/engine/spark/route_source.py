"""The log reader of a route: Penstock's Spark source with the route's first steps, and its stager, inside.

A route of Arrow steps alone runs entirely here: Spark sees one report per task. A route with a Spark step gets its
records from here, after the Arrow steps that come before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock.engine.delivery.log_gaps import Gap, gap_error
from penstock.engine.delivery.task import run_steps, run_task
from penstock.engine.delivery.task_report import REPORT_SCHEMA
from penstock.engine.route_plan import PlannedStep, RoutePlan, links
from penstock.log.read_ranges import ReadOptions, Stretch, offsets_from_json
from penstock.log.spark_source import LogBatchReader, LogSource, LogStreamReader
from penstock.record import RECORD_SCHEMA
from penstock.steps.chain import Chain
from penstock.steps.contract import SparkStep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def route_source(plan: RoutePlan, use: str = "route") -> type[LogSource]:
    """Builds a data source for one route and one ``use`` of it. It is pickled to the tasks by value, so options show
    nothing of the config."""
    # Computed here: a process that only plans would load every step for it.
    yields = RECORD_SCHEMA if plan.rest else REPORT_SCHEMA

    class RouteSource(LogSource):
        @classmethod
        def name(cls) -> str:
            return f"penstock_{use}_{plan.name}"

        def schema(self) -> StructType:
            return from_arrow_schema(yields)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return RouteReader(self.read_options, plan)

        def reader(self, schema: StructType) -> DataSourceReader:
            return RangeReader(self.read_options, plan)

    return RouteSource


class RouteReader(LogStreamReader):
    def __init__(self, options: ReadOptions, plan: RoutePlan) -> None:
        super().__init__(options)
        self._plan = plan

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Refuses a batch whose first records are gone: the log's own reader would begin after them."""
        done = self.options.starting if isinstance(self.options.starting, dict) else {}
        for partition, stop in offsets_from_json(end).items():
            # Spark may ask again for what is committed; that may be gone.
            first = max(start.get(str(partition), 0), done.get(partition, 0))
            oldest = self.log.bounds(partition).oldest
            if first < min(stop, oldest):
                raise gap_error(Gap(self._plan.name, partition, first, oldest - 1))
        return super().partitions(start, end)

    def carry(self, stretch: Stretch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _process_stretch(self._plan, stretch, batches)


class RangeReader(LogBatchReader):
    """The same for a fixed range: a part of a batch that is staged again."""

    def __init__(self, options: ReadOptions, plan: RoutePlan) -> None:
        super().__init__(options)
        self._plan = plan

    def carry(self, stretch: Stretch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _process_stretch(self._plan, stretch, batches)


def _process_stretch(plan: RoutePlan, stretch: Stretch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    chain = plan.head_chain()
    place = (stretch.partition, stretch.start, stretch.end)
    if plan.rest:
        yield from run_steps(plan, chain, batches, f"head-{'-'.join(map(str, place))}", *place)
    else:
        yield run_task(plan, chain, batches, *place).to_batch()


def apply_spark_steps(plan: RoutePlan, frame: DataFrame) -> DataFrame:
    """Applies the steps from the first Spark step on to a frame of records. The result holds reports."""
    arrow: list[PlannedStep] = []
    for place, step in enumerate(plan.rest):
        if step.is_arrow:
            arrow.append(step)
            continue
        if arrow:
            frame = frame.mapInArrow(_arrow_steps(plan, arrow, place), frame.schema)
            arrow = []
        built = step.implementation(step.config)
        assert isinstance(built, SparkStep)
        frame = built.apply(frame)
    return frame.mapInArrow(_staging(plan, arrow), from_arrow_schema(REPORT_SCHEMA))


ArrowFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _arrow_steps(plan: RoutePlan, steps: list[PlannedStep], place: int) -> ArrowFunction:
    chosen = tuple(steps)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        # Named by its place in the plan, so that a retried task replaces its own report.
        yield from run_steps(plan, Chain(links(chosen)), batches, f"between-{place}-{task}")

    return run


def _staging(plan: RoutePlan, steps: list[PlannedStep]) -> ArrowFunction:
    chosen = tuple(steps)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield run_task(plan, Chain(links(chosen)), batches).to_batch()

    return run
