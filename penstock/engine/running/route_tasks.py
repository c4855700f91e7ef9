"""The tasks of a route: as a frame of Spark that yields their reports, and parts of a batch apart from all others,
where their records can harm nobody else."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.engine.delivery.batch_pieces import Ranges, offset_count
from penstock.engine.delivery.task import read_task_reports
from penstock.engine.delivery.task_report import BatchReport, TaskReport, add_up
from penstock.engine.lost_workers.isolation import Isolation
from penstock.engine.lost_workers.lost_worker import WorkerLost, lost_worker
from penstock.engine.lost_workers.task_note import unfinished_tasks
from penstock.engine.lost_workers.trial_process import TrialServer
from penstock.engine.route_plan import RoutePlan
from penstock.engine.spark.holding_frame import apply_holding_step
from penstock.engine.spark.route_source import route_source
from penstock.engine.spark.spark_steps import apply_spark_steps
from penstock.engine.stateful.shards import SHARDS
from penstock.log.local_log import LocalLog
from penstock.log.read_ranges import offsets_to_json
from penstock.log.record_order import Offsets
from penstock.outcome import check_count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRIALS_KEPT = 30.0
"""Seconds for which the process is kept that stages what waits at the destination: retries may follow each other."""


def reporting_frame(plan: RoutePlan, log: LocalLog, frame: DataFrame) -> DataFrame:
    """The frame of reports: what the source yields, or what the steps in Spark make of it."""
    if plan.holding:
        return apply_holding_step(plan, log, frame)
    return apply_spark_steps(plan, frame) if plan.rest else frame


def run_tasks(plan: RoutePlan, reports: DataFrame) -> BatchReport:
    """Run the batch's tasks, in one action, and add up their reports: a row per task, never data."""
    staged = [TaskReport.from_json(row.report) for row in reports.collect()]
    report = add_up([*staged, *read_task_reports(plan)])
    # Without a record in its range it has no task.
    if plan.holding and report.ranges:
        check_count(plan.holding.label, SHARDS, report.shards)
    return report


class IsolatedTasks:
    """Stages parts of a batch, and single items, each where a crash harms nobody. Used by one thread at a time."""

    def __init__(self, spark: SparkSession, plan: RoutePlan, log: LocalLog, own_source: str | None = None) -> None:
        """``own_source``: the name under which Spark gets to know this plan's source; without it, it knows it."""
        self.trials = TrialServer(plan, log.directory)
        self._spark = spark
        self._plan = plan
        self._log = log
        self._own_source = own_source
        self._items_staged_at = -TRIALS_KEPT

    def isolate(self, lost_ranges: Ranges | None = None, lost: WorkerLost | None = None) -> Isolation[Ranges]:
        """Stages ranges, of those over which a worker was lost if there are such."""
        return Isolation(self._stage, self._plan.step_timeout, offset_count(lost_ranges or {}), lost)

    def stage_items(self, places: pa.RecordBatch) -> BatchReport:
        self._items_staged_at = time.monotonic()
        return Isolation(self.trials.stage, self._plan.step_timeout).stage(places)

    def close(self) -> None:
        """End the process, if there is one."""
        self.trials.close()

    def close_if_idle(self) -> None:
        if time.monotonic() - self._items_staged_at > TRIALS_KEPT:
            self.close()

    def _stage(self, ranges: Ranges, limit: float | None) -> BatchReport:
        """In Spark if a step runs there."""
        return self._run_job(ranges) if self._plan.rest else self.trials.stage(ranges, limit)

    def _run_job(self, ranges: Ranges) -> BatchReport:
        """Run the tasks of a part of a batch, whose steps need Spark, as a separate job. Raises ``WorkerLost``."""
        plan = self._plan
        source = route_source(plan) if self._own_source is None else route_source(plan, self._own_source)
        if self._own_source is not None:
            self._spark.dataSource.register(source)
        bounds = {**dict.fromkeys(self._log.partitions(plan.sources), (0, 0)), **ranges}
        options = {
            "path": str(self._log.directory),
            "sources": ",".join(plan.sources),
            "startingOffsets": _json({p: start for p, (start, _) in bounds.items()}),
            "endingOffsets": _json({p: end for p, (_, end) in bounds.items()}),
        }
        try:
            read = self._spark.read.format(source.name()).options(**options).load()
            return run_tasks(plan, reporting_frame(plan, self._log, read))
        except Exception as error:
            lost = lost_worker(error, unfinished_tasks(plan.stage_dir))
            if lost is None:
                raise
            raise lost from error


def _json(offsets: Offsets) -> str:
    return json.dumps(offsets_to_json(offsets))
