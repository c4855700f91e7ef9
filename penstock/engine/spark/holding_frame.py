"""Applies the holding step of a route to the route's frame: decides by shard in Spark's state, then releases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.engine.delivery.task_report import REPORT_SCHEMA
from penstock.engine.route_plan import RoutePlan
from penstock.engine.spark.shard_processor import DECIDED, ShardProcessor
from penstock.engine.stateful.release_task import run_release
from penstock.engine.stateful.shards import release_tasks
from penstock.log.local_log import LocalLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def apply_holding_step(plan: RoutePlan, log: LocalLog, packed: DataFrame) -> DataFrame:
    """The frame of reports that deciding on packed items, and releasing what may go on, gives."""

    def release(decided: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield run_release(plan, log, decided).to_batch()

    decided = packed.groupBy("shard").transformWithState(ShardProcessor(plan), DECIDED, "append", "none")
    tasks = release_tasks(packed.sparkSession.sparkContext.defaultParallelism)
    return decided.repartition(tasks, "task").mapInArrow(release, from_arrow_schema(REPORT_SCHEMA))
