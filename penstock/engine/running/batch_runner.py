"""Delivers the batches of a route's query, one after the other, and says why if one ends the query."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.engine import events
from penstock.engine.delivery.batch_pieces import Ranges, offset_count
from penstock.engine.delivery.batch_writer import Stopped
from penstock.engine.delivery.deliver_batch import Delivery, clean_stage
from penstock.engine.lost_workers.deadly_search import find_deadly_records
from penstock.engine.lost_workers.isolation import Isolation
from penstock.engine.lost_workers.lost_worker import LostCode, WorkerLost, lost_worker
from penstock.engine.lost_workers.task_note import unfinished_tasks
from penstock.engine.retry_lane.postponed_retrier import PostponedRetrier
from penstock.engine.retry_lane.turns import TurnLock
from penstock.engine.route_plan import RoutePlan
from penstock.engine.running.crash_count import CrashCount
from penstock.engine.running.query_end import TRANSIENT, BeginAnew, Cause, reason_of
from penstock.engine.running.route_checkpoint import RouteCheckpoint
from penstock.engine.running.route_pace import Pace
from penstock.engine.running.route_tasks import IsolatedTasks, run_tasks
from penstock.engine.running.stall_watch import StallWatch
from penstock.errors import TargetWentBackError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SUSPECTED_AFTER = 2
"""How often in a row a batch's tasks may raise before its records are suspected."""
ENOUGH_BYTES = 8 << 20
"""So many need not wait for more."""


class BatchRunner:
    """Used by the thread of one query at a time; ``gate`` is held while a batch is delivered."""

    def __init__(
        self,
        delivery: Delivery,
        tasks: IsolatedTasks,
        checkpoint: RouteCheckpoint,
        pace: Pace,
        gate: TurnLock,
        watch: StallWatch,
        crashes: CrashCount,
        cause: Cause,
        mute: Callable[[], None],
    ) -> None:
        """``mute``: keeps Spark from logging the error that ends its query."""
        self._delivery = delivery
        self._tasks = tasks
        self._checkpoint = checkpoint
        self._pace = pace
        self._gate = gate
        self._watch = watch
        self._crashes = crashes
        self._cause = cause
        self._mute = mute
        self._refused = PostponedRetrier(delivery, tasks.stage_items)

    @property
    def _plan(self) -> RoutePlan:
        return self._delivery.plan

    def run_batch(self, frame: DataFrame, number: int) -> None:
        """What Spark calls for each batch: returns when it is committed, and the next one is due."""
        with self._gate:
            if self._delivery.stopping.is_set():
                self._mute()
                raise Stopped
            began = time.monotonic()
            clean_stage(self._plan.stage_dir)
            try:
                self._settle_refused()
                self._deliver(frame, number, began)
                self._settle_refused()
            except Stopped as stopped:
                self._cause.note(stopped)
                self._mute()
                raise
            except (*TRANSIENT, TargetWentBackError) as error:
                # The route says in a line what is the matter; Spark and its gateway would log pages of traces.
                self._cause.note(error)
                self._mute()
                raise Stopped from error
            except Exception as error:
                self._cause.note(error)
                raise
            self._crashes.clear()
            self._delivery.patience.reset()
            clean_stage(self._plan.stage_dir)
        self._pace.wait_for_next(began, self._delivery.stopping, self._has_enough)

    def _has_enough(self) -> bool:
        """Whether the log has so much for this route that a batch need not wait for more."""
        log, found = self._delivery.log, 0
        for partition, position in self._delivery.ledger.offsets(self._plan.name).items():
            found += log.reader(partition).measure(position.committed, log.bounds(partition).end)[1]
        return found >= ENOUGH_BYTES

    def _settle_refused(self) -> None:
        """Settle what is left of a batch that was refused as a whole. Other routes cut such a batch over its range."""
        if self._plan.holding is not None:
            try:
                self._refused.settle_refused()
            finally:
                self._tasks.close()

    def _deliver(self, frame: DataFrame, number: int, began: float) -> None:
        try:
            self._watch.note_begin(began)
            report = run_tasks(self._plan, frame)
            self._watch.note_end()
        except Exception as error:
            lost = lost_worker(error, unfinished_tasks(self._plan.stage_dir)) or self._suspicion(error)
            if lost is None:
                raise
            self._watch.note_end()
            self._deliver_without_worker(number, began, lost, error)
        else:
            self._delivery.deliver(report, began)
            self._plan.set_aside_mark.unlink(missing_ok=True)
        finally:
            self._watch.note_end()
            self._tasks.close()

    def _deliver_without_worker(self, number: int, began: float, lost: WorkerLost, error: Exception) -> None:
        """Deliver a batch over which a worker was lost, or have Spark begin it anew. Raises ``error`` if nothing
        helps."""
        ranges = self._checkpoint.requested_ranges(number)
        if self._plan.holding:
            if self._can_begin_anew(number, ranges, lost):
                raise BeginAnew from error
            raise error
        events.worker_lost(self._plan.name, ranges, str(lost))
        restage = self._tasks.isolate(ranges, lost).stage
        replace(self._delivery, restage_ranges=restage).deliver_isolated(ranges, began)

    def _can_begin_anew(self, number: int, ranges: Ranges, lost: WorkerLost) -> bool:
        """Prepare to run a batch of a holding step again so that no worker is lost. At first what it releases is set
        aside. If a worker is lost nevertheless, it was in a step before, and the records that end it are found and left
        out. Not what was begun: it may be at the destination, and must stay what it was."""
        plan, delivery = self._plan, self._delivery
        if delivery.ledger.standing(plan.name).pending is not None:
            return False
        events.worker_lost(plan.name, ranges, str(lost))
        if not plan.set_aside_mark.exists():
            plan.set_aside_mark.touch()
            return True
        attempt = Isolation(self._tasks.trials.scan, plan.step_timeout, offset_count(ranges), lost).stage
        found = find_deadly_records(plan.name, delivery.log, ranges, attempt, delivery.stopping)
        if found:
            self._checkpoint.keep_deadly_records(number, found)
            plan.set_aside_mark.unlink()
        return bool(found)

    def _suspicion(self, error: Exception) -> WorkerLost | None:
        """Tasks that have raised often enough are tried apart from Spark: if it is a record's fault, it fails alone."""
        in_spark = self._plan.rest and not self._plan.holding
        if in_spark or isinstance(error, TRANSIENT) or self._crashes.failures < SUSPECTED_AFTER:
            return None
        return WorkerLost("", LostCode.RAISED, f"its tasks raise each time: {reason_of(error)}")
