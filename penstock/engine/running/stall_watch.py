"""Notices that the tasks of a batch make no progress, and cancels their job.

A task ends itself when its steps take too long, but not if its process was stopped.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.engine import events
from penstock.engine.lost_workers.lost_worker import STALLED
from penstock.engine.lost_workers.task_note import unfinished_tasks
from penstock.engine.processes.idle_timer import IdleTimer
from penstock.engine.route_plan import RoutePlan
from penstock.engine.spark.jvm import JvmDied
from penstock.engine.spark.spark_session import cancel_jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

STALL_GRACE = 30.0
"""Seconds beyond a step's limit after which its job is cancelled; as long again, and Spark is given up too."""


class StallWatch:
    """Told by the thread that runs the tasks, asked by the one that watches."""

    def __init__(self, spark: SparkSession, plan: RoutePlan) -> None:
        self._spark = spark
        self._plan = plan
        self._idle = IdleTimer()
        self._tasks_since: float | None = None
        self._cut_off: float | None = None

    def note_begin(self, began: float) -> None:
        """Tasks run since then, in monotonic time."""
        self._tasks_since = began

    def note_end(self) -> None:
        self._tasks_since = None

    def stalled_for(self) -> float:
        """Seconds without progress of the current batch's tasks; 0 if none run."""
        since = self._tasks_since
        moved = None if since is None else [task.moved for task in unfinished_tasks(self._plan.stage_dir)]
        still = self._idle.observe((since, moved), time.monotonic())
        return 0.0 if since is None else still

    def cancel_hung_job(self, query: StreamingQuery | None) -> None:
        """Raises ``JvmDied`` if Spark does not end a job that it was told to."""
        limit, still = self._plan.step_timeout, self.stalled_for()
        if limit is None or query is None or still < limit + STALL_GRACE:
            self._cut_off = None
        elif self._cut_off is None:
            self._cut_off = time.monotonic()
            events.job_stalled(self._plan.name, still)
            cancel_jobs(self._spark, str(query.runId), STALLED)
        elif time.monotonic() - self._cut_off > STALL_GRACE:
            raise JvmDied(f"Spark does not end a job of route {self._plan.name} that hangs")
