"""Runs a route: keeps one Spark streaming query running and delivers its batches by the batch protocol."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from penstock.backoff import Backoff
from penstock.engine import events
from penstock.engine.delivery.batch_pieces import Ranges, offset_count, remaining
from penstock.engine.delivery.batch_writer import wait_for_destination
from penstock.engine.delivery.deliver_batch import Delivery, Halted, OutOfPatience, StateBehind, Stopped, clean_stage
from penstock.engine.delivery.failing_report import FailingReport
from penstock.engine.delivery.log_gaps import open_route
from penstock.engine.delivery.task import read_task_reports
from penstock.engine.delivery.task_report import BatchReport, TaskReport, add_up
from penstock.engine.history.target_position import return_to_position
from penstock.engine.layout import Layout
from penstock.engine.ledger import Ledger, Operator, RouteState
from penstock.engine.lost_workers.deadly_records import DeadlyRecord, keep_deadly_records, kept_deadly_records
from penstock.engine.lost_workers.deadly_search import find_deadly_records
from penstock.engine.lost_workers.isolation import Isolation
from penstock.engine.lost_workers.lost_worker import NO_CONNECTION, STALLED, LostCode, WorkerLost, lost_worker
from penstock.engine.lost_workers.task_note import unfinished_tasks
from penstock.engine.lost_workers.trial_process import TrialServer
from penstock.engine.processes.idle_timer import IdleTimer
from penstock.engine.retry_lane.postponed_retrier import PostponedRetrier
from penstock.engine.retry_lane.retrier import RetryLane
from penstock.engine.retry_lane.turns import TurnLock
from penstock.engine.route_plan import RoutePlan
from penstock.engine.spark.holding_frame import apply_holding_step
from penstock.engine.spark.jvm import JvmDied
from penstock.engine.spark.route_source import route_source
from penstock.engine.spark.spark_checkpoints import (
    batch_end,
    find_moved_state,
    has_batches,
    has_other_state,
    keep_start,
    keep_state_name,
    lacks_state,
    newest_batch,
    next_start,
)
from penstock.engine.spark.spark_session import cancel_jobs, mute_query_errors, unmute_query_errors
from penstock.engine.spark.spark_steps import apply_spark_steps
from penstock.engine.stateful.route_control import RouteControl
from penstock.engine.stateful.shards import SHARDS
from penstock.engine.stateful.state_recovery import cannot_catch_up, give_up_state, recover_state
from penstock.errors import ContradictionError, LedgerUnavailable, TargetWentBackError, TransientError
from penstock.log.read_ranges import offsets_to_json
from penstock.log.record_order import Offsets
from penstock.outcome import check_count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.streaming.query import StreamingQuery


TABLE_CHECK_EVERY = 0.2
"""Seconds between checks whether the tables that a ``once`` run waits for have caught up."""
TELLING_ENDS = 5.0
"""Seconds to wait for the last word on what fails."""
GATE_PATIENCE = 5.0
"""Seconds to wait for the end of a batch before what waits at the destination is tried; then again a second later."""
TRIALS_KEPT = 30.0
"""Seconds for which the process is kept that stages what waits at the destination: retries may follow each other."""
RESUME_CHECK_EVERY = 0.5
"""Seconds between checks whether an operator has resumed a halted route."""
STALL_GRACE = 30.0
"""Seconds beyond a step's limit after which its job is cancelled; as long again, and Spark is given up too."""
SUSPECTED_AFTER = 2
"""How often in a row a batch's tasks may raise before its records are suspected."""
ONCE_TRIES = 5
"""How often in a row a route may crash in a ``once`` run."""

ONCE_TRIES_WHEN_BUSY = 20
"""How often, if only a Python process of Spark's was slow to start."""

LOOK_EVERY = 0.25
"""Seconds between looks whether there is enough for a batch."""
ENOUGH_BYTES = 8 << 20

_STARTING = threading.Lock()
"""Held while a query starts: it takes the session's settings at that moment."""

_TRANSIENT = (TransientError, LedgerUnavailable, OperationalError)
"""Errors that pass when the database is available again."""


@dataclass(frozen=True)
class Pace:
    """How a route takes from the log: how often, and how much at a time."""

    every: float
    max_records: int
    max_bytes: int
    once: bool = False
    """Deliver what is in the log now, then end."""
    in_rounds: bool = False
    """Deliver everything in the log, in as many batches as it needs, then wait until the next round is due."""
    gathers: bool = False
    """``every`` is how long a batch waits for more; it begins sooner if there is enough."""

    @property
    def look_every(self) -> float:
        """How often an idle route looks for records."""
        return min(self.every, LOOK_EVERY) if self.gathers else self.every


class RouteRunner(threading.Thread):
    """Runs one route until ``stop``; with a pace of ``once``, until what was there is delivered.

    A query that ends with an error is started again after a growing pause: its range is fixed, so it continues exactly
    there. Only a ``once`` run gives up, after ``ONCE_TRIES`` crashes without a batch between them; transient errors do
    not count, but may not last longer than the delivery's patience. ``finished`` tells whether a ``once`` run came to
    its end.

    A route that halts at a record is not started again until an operator says so, through the ledger.
    """

    def __init__(self, spark: SparkSession, delivery: Delivery, layout: Layout, pace: Pace, backoff: Backoff) -> None:
        super().__init__(name=f"route-{delivery.plan.name}", daemon=True)
        self._spark = spark
        self._trials = TrialServer(delivery.plan, layout.log)
        self._delivery = replace(
            delivery, restage_ranges=Isolation(self._stage_isolated, delivery.plan.step_timeout).stage
        )
        self._retry_plan = replace(delivery.plan, stage_dir=layout.retry_stage(delivery.plan.name))
        self._retry_trials = TrialServer(self._retry_plan, layout.log)
        self._layout = layout
        self._pace = pace
        self._backoff = backoff
        self._gate = TurnLock()
        stage_for_retry = Isolation(self._stage_for_retry, delivery.plan.step_timeout).stage
        beside = replace(self._delivery, plan=self._retry_plan, restage_ranges=stage_for_retry)
        waiting = layout.waiting_stage(delivery.plan.name)
        self._refused = PostponedRetrier(self._delivery, self._stage_items)
        self._postponed = PostponedRetrier(beside, self._stage_items_for_retry)
        # A process takes seconds to start, so the lane keeps its own while tables catch up.
        self._lane = RetryLane(beside, waiting, self._retry_postponed, self._close_idle_trials)
        self._retried_at = -TRIALS_KEPT
        self._may_retry = threading.Event()
        """Set once the target was asked how far it is: it may have to get again what waits."""
        self._start_again = threading.Event()
        """Set if the target has gone back while nothing was delivered: it has to be asked again."""
        self._ended = threading.Event()
        self._query: StreamingQuery | None = None
        self._idle = IdleTimer()
        self._tasks_since: float | None = None
        self._cut_off: float | None = None
        self._crashes: Counter[bool] = Counter()
        """Since the last batch; ``True`` counts those where a process was only slow to start."""
        self._cause: Exception | None = None
        self._state_behind = False
        """Whether the state of the route's holding step was found not to belong to its ledger."""
        self.finished = False
        self.halted = False

    @property
    def plan(self) -> RoutePlan:
        return self._delivery.plan

    @property
    def _ledger(self) -> Ledger:
        return self._delivery.ledger

    def run(self) -> None:
        for left in (self._layout.waiting_stage(self.plan.name), self._retry_plan.stage_dir):
            clean_stage(left)
        name = f"retries-{self.plan.name}"
        threading.Thread(target=self._keep_retrying, name=name, daemon=True).start()
        self._start_telling()
        failing = FailingReport(self._layout.run, self.plan, self._ledger, self._delivery.log)
        told = (self._delivery.destination, self._ended)
        telling = threading.Thread(
            target=failing.keep_telling, args=told, name=f"failing-{self.plan.name}", daemon=True
        )
        telling.start()
        try:
            self._run()
        finally:
            self._ended.set()
            self._delivery.retry_wanted.set()
            telling.join(TELLING_ENDS)

    def _keep_retrying(self) -> None:
        try:
            self._lane.keep_trying(self._ended)
        finally:
            self._retry_trials.close()

    def _start_telling(self) -> None:
        """Tell the route's holding step, if it has one, the time and what to let go of. A ``once`` run does not
        wait."""
        if self.plan.holding and not self._pace.once:
            name = f"control-{self.plan.name}"
            threading.Thread(target=self._control().keep_telling, args=(self._ended,), name=name, daemon=True).start()

    def _control(self) -> RouteControl:
        return RouteControl(self._delivery.log, self._ledger, self.plan)

    def _run(self) -> None:
        route, stopping, backoff = self.plan.name, self._delivery.stopping, self._backoff
        announced = False
        while not stopping.is_set():
            started = time.monotonic()
            try:
                self._note(RouteState.STARTING)
                self._reconcile_history()
                self._return_to_position()
                self._query = self._start_query()
                if stopping.is_set():
                    # `stop` found no query yet.
                    self._query.stop()
                self._note(RouteState.RUNNING, after=RouteState.STARTING)
                if not announced:
                    events.route_started(route)
                    announced = True
                self._query.awaitTermination()
                if self._start_again.is_set() and not stopping.is_set():
                    self._start_again.clear()
                    continue
                if (self._pace.once or self._pace.in_rounds) and not stopping.is_set():
                    self._release_log()
                if self._pace.in_rounds and not self._pace.once:
                    stopping.wait(max(0.0, started + self._pace.every - time.monotonic()))
                    continue
                self.finished = self._pace.once and self._wait_for_the_rest()
                break
            except Exception as ended:
                if isinstance(self._cause, Halted):
                    self._cause = None
                    if self._pace.once or not self._wait_for_resume():
                        return
                    announced = False
                    continue
                if isinstance(self._cause, _BeginAnew):
                    self._cause = None
                    unmute_query_errors(self._spark, self.plan.name)
                    continue
                if self._start_again.is_set() or isinstance(self._cause, TargetWentBackError):
                    if not self._start_again.is_set():
                        events.target_went_back(route, str(self._cause))
                    self._start_again.clear()
                    self._cause = None
                    unmute_query_errors(self._spark, self.plan.name)
                    continue
                if isinstance(self._cause, StateBehind):
                    behind, self._cause, self._state_behind = self._cause, None, True
                    unmute_query_errors(self._spark, self.plan.name)
                    if self._should_give_up(behind):
                        events.route_gave_up(route, "its state does not fit its ledger", self._crashes.total())
                        return
                    stopping.wait(backoff.next())
                    continue
                if isinstance(self._cause, OutOfPatience):
                    # The ledger keeps its state, which says what it waits for.
                    unmute_query_errors(self._spark, self.plan.name)
                    events.route_out_of_patience(route, str(self._cause))
                    return
                # Whatever else ended the query, the route must start again: data waits in the log.
                if stopping.is_set():
                    break
                if time.monotonic() - started > 60:
                    backoff.reset()
                # Spark returns what a batch raised as text only.
                error, self._cause = self._cause or ended, None
                wait, reason = backoff.next(), reason_of(error)
                if isinstance(error, _TRANSIENT):
                    unmute_query_errors(self._spark, self.plan.name)
                self._note(RouteState.CRASHED, reason)
                if self._should_give_up(error):
                    events.route_gave_up(route, reason, self._crashes.total())
                    return
                events.route_crashed(route, reason, wait)
                announced = False
                stopping.wait(wait)
        self._note(RouteState.STOPPED)
        events.route_stopped(route)

    def _settle_refused(self) -> None:
        """Settle what is left of a batch that was refused as a whole. Other routes cut such a batch over its range."""
        if self.plan.holding is not None:
            try:
                self._refused.settle_refused()
            finally:
                self._trials.close()

    def _retry_postponed(self) -> None:
        """Try what waits at the destination, between two batches."""
        destination = self._delivery.destination
        may_wait = self.plan.holding is not None or destination.capabilities.leaves_waiting
        if not may_wait or self.halted or not self._may_retry.is_set():
            return
        try:
            if due := destination.look_after():
                self._ledger.wake(self.plan.name, due)
            self._retry_due()
        except TargetWentBackError as error:
            events.target_went_back(self.plan.name, str(error))
            self._start_again.set()
            if self._query is not None:
                self._query.stop()

    def _retry_due(self) -> None:
        if not self._postponed.has_due():
            return
        # Before the first batch: it may be long until one comes.
        self._delivery.check_history_without_halt()
        if self._delivery.history_agrees:
            self._postponed.retry_due(partial(self._gate.within, GATE_PATIENCE))

    def _close_idle_trials(self) -> None:
        if time.monotonic() - self._retried_at > TRIALS_KEPT:
            self._retry_trials.close()

    def _return_to_position(self) -> None:
        """Go back to where the target says it is, if it is behind. Waits while it cannot be asked."""
        delivery, backoff = self._delivery, Backoff()
        self._may_retry.clear()
        while not self._may_retry.is_set():
            try:
                with self._gate:
                    return_to_position(self._ledger, delivery.log, self.plan, delivery.destination)
                self._may_retry.set()
            except TransientError as error:
                try:
                    wait_for_destination(
                        self._ledger, self.plan.name, delivery.patience, delivery.stopping, backoff, error
                    )
                except Stopped as stopped:
                    self._cause = stopped
                    raise
        if backoff.waited:
            delivery.patience.reset()
            self._note(RouteState.STARTING)

    def _wait_for_the_rest(self) -> bool:
        """Wait until every table has got the rows it waits for, and the destination has taken what it had refused for a
        while. ``False`` if that takes too long."""
        stopping, patience = self._delivery.stopping, self._delivery.patience
        while missing := self._missing():
            if not self._delivery.history_agrees:
                self._reconcile_history()
            if patience.is_over():
                events.route_out_of_patience(self.plan.name, missing)
                return False
            if stopping.wait(TABLE_CHECK_EVERY):
                return False
        return True

    def _missing(self) -> str:
        """What keeps a run to the end from its end, if anything."""
        if tables := self._ledger.waiting_tables(self.plan.name):
            return f"tables still unavailable: {', '.join(sorted(tables))}"
        target = self._delivery.destination.capabilities
        # What waits for other records, which may never come, is no reason to wait.
        waiting = self._ledger.postponed_items(self.plan.name) if target.leaves_waiting else 0
        return f"{waiting} records are not taken yet" if waiting and not target.conflates_waiting else ""

    def _reconcile_history(self) -> None:
        """Check whether the route may go on with what it finds, and settle what it has adopted."""
        try:
            self._delivery.check_history()
            if self._ledger.adopted_batches(self.plan.name):
                open_route(self._delivery.log, self._ledger, self.plan.name, self.plan.sources)
                self._delivery.settle_adopted()
        except Exception as error:
            self._cause = error
            raise

    def _release_log(self) -> None:
        """Release all that is committed: after a query has ended, Spark does not even ask for its last batch again."""
        positions = self._ledger.offsets(self.plan.name)
        self._delivery.log.holds.set(self.plan.name, {p: position.committed for p, position in positions.items()})

    def _wait_for_resume(self) -> bool:
        """Wait until an operator resumes the route. ``False`` if the engine stops first: the route stays halted."""
        route, stopping = self.plan.name, self._delivery.stopping
        self.halted = True
        unmute_query_errors(self._spark, self.plan.name)
        while not stopping.wait(RESUME_CHECK_EVERY):
            try:
                activity = self._ledger.activity(route)
            except SQLAlchemyError as error:
                events.ledger_unavailable(route, reason_of(error))
                continue
            if activity is None or activity.state is not RouteState.HALTED:
                self.halted = False
                events.route_resumed(route)
                return True
        return False

    def _should_give_up(self, error: Exception) -> bool:
        if isinstance(error, _TRANSIENT):
            return self._delivery.patience.is_over()
        # Spark gives a Python process ten seconds to start, which is too few on a busy machine.
        slow = NO_CONNECTION in str(error)
        self._crashes[slow] += 1
        return self._pace.once and self._crashes[slow] >= (ONCE_TRIES_WHEN_BUSY if slow else ONCE_TRIES)

    def stop(self, patience: float) -> bool:
        """Let the current batch finish, for ``patience`` seconds at most, and end the query.

        Returns whether nothing was cut short. What was cut short is in the log and is delivered at the next start.
        """
        until = time.monotonic() + patience
        finished = self._gate.acquire(timeout=max(0.0, patience))
        self._delivery.stopping.set()
        query = self._query
        if query is not None:
            query.stop()
        if finished:
            self._gate.release()
        self._delivery.destination.finish(max(0.0, until - time.monotonic()))
        return finished

    @property
    def is_delivering(self) -> bool:
        """Whether a batch is being delivered now, or something else is under way at the target."""
        return self._gate.locked() or self._delivery.destination.is_busy

    def flush_if_asked(self) -> None:
        """Before a stop: let go of all that the holding step knows, if it is to. What it makes of it is delivered
        before the route has caught up."""
        step = self.plan.holding_step() if self.plan.holding else None
        if step is not None and step.flush_on_shutdown and step.flush_command is not None:
            operator = Operator("penstock", "flush_on_shutdown: the pipeline is stopped")
            self._ledger.request_command(self.plan.name, step.flush_command, "{}", operator)

    def caught_up(self) -> bool:
        """Whether everything that the log holds for this route has been delivered, and nothing is asked of its step."""
        log, positions = self._delivery.log, self._ledger.offsets(self.plan.name)
        if self.plan.holding and self._ledger.commands(self.plan.name):
            return False
        return all(
            partition in positions and positions[partition].committed >= log.bounds(partition).end
            for partition in log.partitions(self.plan.sources)
            if log.bounds(partition).end > 0
        )

    def _note(self, state: RouteState, message: str = "", after: RouteState | None = None) -> None:
        """Note the route's state in the ledger. An unavailable ledger must not end the thread that waits for it."""
        try:
            self._ledger.set_state(self.plan.name, state, message, after)
        except SQLAlchemyError as error:
            events.ledger_unavailable(self.plan.name, reason_of(error))

    def _start_query(self) -> StreamingQuery:
        plan, pace = self.plan, self._pace
        self._recover_state()
        if plan.holding:
            keep_state_name(self._select_checkpoint(), plan.state_name or "")
            find_moved_state(self._select_checkpoint())
            if pace.once:
                self._control().tell_once()
            plan = replace(plan, deadly_records=self._deadly_records())
        source = route_source(plan)
        self._spark.dataSource.register(source)
        reader = self._spark.readStream.format(source.name()).options(**self._options())
        # The query's thread inherits this: each route's tasks get their share of the cores.
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", plan.name)
        checkpoint = str(self._select_checkpoint())
        reports = self._reporting(plan, reader.load())
        writer = reports.writeStream.queryName(plan.name).option("checkpointLocation", checkpoint)
        if pace.once or pace.in_rounds:
            writer = writer.trigger(availableNow=True)
        else:
            # Spark's own interval uses the wall clock: setting that back would make it sleep for hours. So Spark goes
            # on at once, `_run_batch` keeps the pace, and `pollingDelay` is how often an idle query looks.
            writer = writer.trigger(processingTime="0 seconds")
        settings = {"spark.sql.streaming.pollingDelay": f"{max(1, round(pace.look_every * 1000))}ms"}
        if plan.holding:
            settings["spark.sql.shuffle.partitions"] = str(SHARDS)
        with _STARTING, _settings(self._spark, settings):
            return writer.foreachBatch(self._run_batch).start()

    def _recover_state(self) -> None:
        """Begin anew where the state of the checkpoint is not the one that belongs to step and ledger. Raises
        ``Halted`` if that would lose or double something."""
        plan, ledger, log = self.plan, self._ledger, self._delivery.log
        try:
            if has_other_state(self._select_checkpoint(), plan.state_name):
                self._check_begun_batch()
                give_up_state(ledger, log, plan)
            elif self._state_behind or (plan.holding and self._has_useless_state()):
                give_up_state(ledger, log, plan)
            self._state_behind = False
            recover_state(ledger, log, plan, has_batches(self._select_checkpoint()))
        except ContradictionError as error:
            self._cause = self._delivery.halt_on_contradiction(error)
            raise self._cause from error

    def _has_useless_state(self) -> bool:
        checkpoint = self._select_checkpoint()
        starts = next_start(checkpoint)
        return lacks_state(checkpoint) or cannot_catch_up(self._ledger, self._delivery.log, self.plan, starts)

    def _check_begun_batch(self) -> None:
        """Before a batch under way is given up, because another step decides from now on. It would be delivered again:
        raises ``Halted`` if the destination has it, because with the step that it was begun with it can be finished."""
        pending = self._ledger.standing(self.plan.name).pending
        if pending is not None:
            try:
                self._delivery.check_not_written(pending)
            except Halted as halted:
                self._cause = halted
                raise

    def _select_checkpoint(self) -> Path:
        """Return the current checkpoint; remove those from before the route was moved back: their offsets are void."""
        route, scope = self.plan.name, self._ledger.scope
        generation = self._ledger.generation(route)
        for earlier in range(generation):
            shutil.rmtree(self._layout.checkpoint(route, scope, earlier), ignore_errors=True)
        return self._layout.checkpoint(route, scope, generation)

    def _deadly_records(self) -> tuple[DeadlyRecord, ...]:
        """What the batch that Spark begins with is run without."""
        checkpoint = self._select_checkpoint()
        batch = newest_batch(checkpoint)
        return () if batch is None else kept_deadly_records(checkpoint, batch)

    def _options(self) -> dict[str, str]:
        route = self.plan.name
        positions = open_route(self._delivery.log, self._ledger, route, self.plan.sources)
        starts = {partition: position.committed for partition, position in positions.items()}
        options = {
            "path": str(self._layout.log),
            "sources": ",".join(self.plan.sources),
            "consumer": route,
            "startingOffsets": _json(keep_start(self._select_checkpoint(), starts) if self.plan.holding else starts),
            "maxRecordsPerTrigger": str(self._pace.max_records),
            "maxBytesPerTrigger": str(self._pace.max_bytes),
        }
        pending = self._ledger.standing(route).pending
        if pending is not None:
            # The checkpoint fixes ranges too, but may be gone; what the ledger says must hold without it.
            # Spark does not see the sources that the route no longer reads.
            fixed = {p: stretch for p, stretch in pending.ranges.items() if p in starts}
            begun = {**starts, **{p: start for p, (start, _) in fixed.items()}}
            ended = {**begun, **{p: end for p, (_, end) in fixed.items()}}
            options["fixedRange"] = json.dumps({"start": offsets_to_json(begun), "end": offsets_to_json(ended)})
        return options

    def _run_batch(self, frame: DataFrame, number: int) -> None:
        with self._gate:
            if self._delivery.stopping.is_set():
                mute_query_errors(self._spark, self.plan.name)
                raise Stopped
            began = time.monotonic()
            clean_stage(self.plan.stage_dir)
            try:
                self._settle_refused()
                self._deliver(frame, number, began)
                self._settle_refused()
            except Stopped as stopped:
                self._cause = stopped
                mute_query_errors(self._spark, self.plan.name)
                raise
            except (*_TRANSIENT, TargetWentBackError) as error:
                # The route says in a line what is the matter; Spark and its gateway would log pages of traces.
                self._cause = error
                mute_query_errors(self._spark, self.plan.name)
                raise Stopped from error
            except Exception as error:
                self._cause = error
                raise
            self._crashes.clear()
            self._delivery.patience.reset()
            clean_stage(self.plan.stage_dir)
        if not (self._pace.once or self._pace.in_rounds):
            self._wait_for_more(began + self._pace.every)

    def _wait_for_more(self, until: float) -> None:
        """Wait until the next batch is due."""
        stopping, pace = self._delivery.stopping, self._pace
        while (left := until - time.monotonic()) > 0 and not stopping.wait(min(left, pace.look_every)):
            if pace.gathers and self._has_enough():
                return

    def _has_enough(self) -> bool:
        """Whether the log has so much for this route that a batch need not wait for more."""
        log, found = self._delivery.log, 0
        for partition, position in self._ledger.offsets(self.plan.name).items():
            found += log.reader(partition).measure(position.committed, log.bounds(partition).end)[1]
        return found >= ENOUGH_BYTES

    def stalled_for(self) -> float:
        """Seconds without progress of the current batch's tasks; 0 if none run."""
        since = self._tasks_since
        moved = None if since is None else [task.moved for task in unfinished_tasks(self.plan.stage_dir)]
        still = self._idle.observe((since, moved), time.monotonic())
        return 0.0 if since is None else still

    def cancel_hung_job(self) -> None:
        """Cancel a job whose tasks make no progress: a task ends itself when its steps take too long, but not if its
        process was stopped. Raises ``JvmDied`` if Spark does not end it."""
        limit, still, query = self.plan.step_timeout, self.stalled_for(), self._query
        if limit is None or query is None or still < limit + STALL_GRACE:
            self._cut_off = None
        elif self._cut_off is None:
            self._cut_off = time.monotonic()
            events.job_stalled(self.plan.name, still)
            cancel_jobs(self._spark, str(query.runId), STALLED)
        elif time.monotonic() - self._cut_off > STALL_GRACE:
            raise JvmDied(f"Spark does not end a job of route {self.plan.name} that hangs")

    def _deliver(self, frame: DataFrame, number: int, began: float) -> None:
        try:
            self._tasks_since = began
            report = self._run_tasks(self.plan, frame)
            self._tasks_since = None
        except Exception as error:
            lost = lost_worker(error, unfinished_tasks(self.plan.stage_dir)) or self._suspicion(error)
            if lost is None:
                raise
            self._tasks_since = None
            ranges = self._requested_ranges(number)
            if self.plan.holding:
                if self._can_begin_anew(number, ranges, lost):
                    raise _BeginAnew from error
                raise
            events.worker_lost(self.plan.name, ranges, str(lost))
            isolation = Isolation(self._stage_isolated, self.plan.step_timeout, offset_count(ranges), lost)
            replace(self._delivery, restage_ranges=isolation.stage).deliver_isolated(ranges, began)
        else:
            self._delivery.deliver(report, began)
            self.plan.set_aside_mark.unlink(missing_ok=True)
        finally:
            self._tasks_since = None
            self._trials.close()

    def _can_begin_anew(self, number: int, ranges: Ranges, lost: WorkerLost) -> bool:
        """Prepare to run a batch of a holding step again so that no worker is lost. At first what it releases is set
        aside. If a worker is lost nevertheless, it was in a step before, and the records that end it are found and left
        out. Not what was begun: it may be at the destination, and must stay what it was."""
        if self._ledger.standing(self.plan.name).pending is not None:
            return False
        events.worker_lost(self.plan.name, ranges, str(lost))
        if not self.plan.set_aside_mark.exists():
            self.plan.set_aside_mark.touch()
            return True
        attempt = Isolation(self._trials.scan, self.plan.step_timeout, offset_count(ranges), lost).stage
        found = find_deadly_records(self.plan.name, self._delivery.log, ranges, attempt, self._delivery.stopping)
        if found:
            keep_deadly_records(self._select_checkpoint(), number, found)
            self.plan.set_aside_mark.unlink()
        return bool(found)

    def _suspicion(self, error: Exception) -> WorkerLost | None:
        """Tasks that have raised often enough are tried apart from Spark: if it is a record's fault, it fails alone."""
        in_spark = self.plan.rest and not self.plan.holding
        if in_spark or isinstance(error, _TRANSIENT) or self._crashes[False] < SUSPECTED_AFTER:
            return None
        return WorkerLost("", LostCode.RAISED, f"its tasks raise each time: {reason_of(error)}")

    def _stage_isolated(self, ranges: Ranges, limit: float | None) -> BatchReport:
        """Stage a part of a batch where its records can harm nobody else: in Spark if a step runs there."""
        if not self.plan.rest:
            return self._trials.stage(ranges, limit)
        return self._run_isolated_job(self.plan, route_source(self.plan), ranges)

    def _stage_items(self, places: pa.RecordBatch) -> BatchReport:
        return Isolation(self._trials.stage, self.plan.step_timeout).stage(places)

    def _stage_items_for_retry(self, places: pa.RecordBatch) -> BatchReport:
        self._retried_at = time.monotonic()
        return Isolation(self._retry_trials.stage, self.plan.step_timeout).stage(places)

    def _stage_for_retry(self, ranges: Ranges, limit: float | None) -> BatchReport:
        """The same for a part that a table waits for, beside the current batch."""
        if not self._retry_plan.rest:
            return self._retry_trials.stage(ranges, limit)
        source = route_source(self._retry_plan, "waiting")
        self._spark.dataSource.register(source)
        return self._run_isolated_job(self._retry_plan, source, ranges)

    def _requested_ranges(self, number: int) -> Ranges:
        """The part of Spark's batch that is not committed. It ends where the checkpoint says: Spark fixed that before
        the batch began."""
        end = batch_end(self._select_checkpoint(), number)
        committed = {p: position.committed for p, position in self._ledger.offsets(self.plan.name).items()}
        return remaining({p: (0, stop) for p, stop in end.items()}, committed)

    def _run_isolated_job(self, plan: RoutePlan, source: type[DataSource], ranges: Ranges) -> BatchReport:
        """Run the tasks of a part of a batch, whose steps need Spark, as a separate job. Raises ``WorkerLost``."""
        others = dict.fromkeys(self._delivery.log.partitions(self.plan.sources), (0, 0))
        bounds = {**others, **ranges}
        options = {
            "path": str(self._layout.log),
            "sources": ",".join(self.plan.sources),
            "startingOffsets": _json({p: start for p, (start, _) in bounds.items()}),
            "endingOffsets": _json({p: end for p, (_, end) in bounds.items()}),
        }
        try:
            read = self._spark.read.format(source.name()).options(**options).load()
            return self._run_tasks(plan, self._reporting(plan, read))
        except Exception as error:
            lost = lost_worker(error, unfinished_tasks(plan.stage_dir))
            if lost is None:
                raise
            raise lost from error

    def _reporting(self, plan: RoutePlan, frame: DataFrame) -> DataFrame:
        """The frame of reports: what the source yields, or what the steps in Spark make of it."""
        if plan.holding:
            return apply_holding_step(plan, self._delivery.log, frame)
        return apply_spark_steps(plan, frame) if plan.rest else frame

    def _run_tasks(self, plan: RoutePlan, frame: DataFrame) -> BatchReport:
        """Run the batch's tasks, in one action, and add up their reports: a row per task, never data."""
        staged = [TaskReport.from_json(row.report) for row in frame.collect()]
        report = add_up([*staged, *read_task_reports(plan)])
        # Without a record in its range it has no task.
        if plan.holding and report.ranges:
            check_count(plan.holding.label, SHARDS, report.shards)
        return report


class _BeginAnew(Stopped):
    """Leaves a batch of Spark, which runs it again."""


def reason_of(error: BaseException) -> str:
    """The line of an error that says what happened, without the stack traces that Spark adds."""
    text = str(error)
    marks = [line.strip() for line in text.splitlines() if "PEN-" in line]
    if marks:
        return marks[-1][marks[-1].index("PEN-") :]
    _, traced, trace = text.rpartition("Traceback (most recent call last):\n")
    lines = [line for line in trace.splitlines() if line.strip() and not (traced and line.startswith(" "))]
    name = type(error).__name__
    if not lines:
        return name
    return (lines[0] if traced else f"{name}: {lines[0].strip()}")[:500]


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """The session with these settings."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


def _json(offsets: Offsets) -> str:
    return json.dumps(offsets_to_json(offsets))
