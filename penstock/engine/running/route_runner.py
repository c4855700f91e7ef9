"""Runs a route: keeps one Spark streaming query running, and decides what follows when it has ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError

from penstock.backoff import Backoff
from penstock.engine import events
from penstock.engine.delivery.batch_writer import OutOfPatience, Stopped
from penstock.engine.delivery.deliver_batch import Delivery, StateBehind
from penstock.engine.delivery.failing_report import FailingReport
from penstock.engine.delivery.halts import Halted
from penstock.engine.delivery.log_gaps import open_route
from penstock.engine.history.settle_adopted import settle_adopted
from penstock.engine.layout import Layout
from penstock.engine.ledger import Ledger, Operator, RouteState
from penstock.engine.retry_lane.turns import TurnLock
from penstock.engine.route_plan import RoutePlan
from penstock.engine.running.batch_runner import BatchRunner
from penstock.engine.running.crash_count import CrashCount
from penstock.engine.running.query_end import TRANSIENT, BeginAnew, Cause, reason_of
from penstock.engine.running.retries import RouteRetries
from penstock.engine.running.route_checkpoint import RouteCheckpoint
from penstock.engine.running.route_pace import Pace
from penstock.engine.running.route_query import start_query
from penstock.engine.running.route_tasks import IsolatedTasks
from penstock.engine.running.stall_watch import StallWatch
from penstock.engine.running.state_check import StateCheck
from penstock.engine.spark.spark_checkpoints import find_moved_state, keep_state_name
from penstock.engine.spark.spark_session import mute_query_errors, unmute_query_errors
from penstock.engine.stateful.route_control import RouteControl
from penstock.errors import TargetWentBackError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TABLE_CHECK_EVERY = 0.2
"""Seconds between checks whether the tables that a ``once`` run waits for have caught up."""
RESUME_CHECK_EVERY = 0.5
"""Seconds between checks whether an operator has resumed a halted route."""
TELLING_ENDS = 5.0
"""Seconds to wait for the last word on what fails."""
LONG_RUN = 60.0
"""A query that ran for so many seconds was no attempt: the pause after it is a short one."""


class _Next(Enum):
    """What follows the end of a query."""

    QUERY = auto()
    """Another one."""
    STOP = auto()
    """The end: the route has stopped."""
    LEAVE = auto()
    """The end, too; the ledger keeps the state of the route, which says why."""


class RouteRunner(threading.Thread):
    """Runs one route until ``stop``; with a pace of ``once``, until what was there is delivered.

    A query that ends with an error is started again after a growing pause: its range is fixed, so it continues exactly
    there. Only a ``once`` run gives up: see ``CrashCount``. ``finished`` tells whether a ``once`` run came to its end.

    A route that halts at a record is not started again until an operator says so, through the ledger.
    """

    def __init__(self, spark: SparkSession, delivery: Delivery, layout: Layout, pace: Pace, backoff: Backoff) -> None:
        super().__init__(name=f"route-{delivery.plan.name}", daemon=True)
        self._spark = spark
        self._layout = layout
        self._pace = pace
        self._backoff = backoff
        tasks = IsolatedTasks(spark, delivery.plan, delivery.log)
        self._delivery = replace(delivery, restage_ranges=tasks.isolate().stage)
        self._gate = TurnLock()
        self._halted = threading.Event()
        self._ended = threading.Event()
        self._query: StreamingQuery | None = None
        self._cause = Cause()
        self._crashes = CrashCount(delivery.patience, pace.once)
        self._checkpoint = RouteCheckpoint(delivery.plan, layout, delivery.log, delivery.ledger)
        self._state = StateCheck(self._delivery, self._checkpoint, self._cause)
        self._watch = StallWatch(spark, delivery.plan)
        self._retries = RouteRetries(spark, self._delivery, layout, self._gate, self._halted, self._leave_query)
        mute = partial(mute_query_errors, spark, delivery.plan.name)
        self._batches = BatchRunner(
            self._delivery, tasks, self._checkpoint, pace, self._gate, self._watch, self._crashes, self._cause, mute
        )
        self._is_announced = False
        """Whether it was said that the route has started, and nothing since that it has not."""
        self.finished = False

    @property
    def plan(self) -> RoutePlan:
        return self._delivery.plan

    @property
    def halted(self) -> bool:
        return self._halted.is_set()

    @property
    def is_delivering(self) -> bool:
        """Whether a batch is being delivered now, or something else is under way at the target."""
        return self._gate.locked() or self._delivery.destination.is_busy

    @property
    def _ledger(self) -> Ledger:
        return self._delivery.ledger

    def run(self) -> None:
        self._retries.clean()
        self._start_beside("retries", self._retries.run)
        # A holding step is told the time and what to let go of. A ``once`` run does not wait.
        if self.plan.holding and not self._pace.once:
            self._start_beside("control", self._control().keep_telling)
        failing = FailingReport(self._layout.run, self.plan, self._ledger, self._delivery.log)
        telling = self._start_beside("failing", partial(failing.keep_telling, self._delivery.destination))
        try:
            self._run()
        finally:
            self._ended.set()
            self._retries.end()
            telling.join(TELLING_ENDS)

    def stop(self, patience: float) -> bool:
        """Let the current batch finish, for ``patience`` seconds at most, and end the query.

        Returns whether nothing was cut short. What was cut short is in the log and is delivered at the next start.
        """
        until = time.monotonic() + patience
        finished = self._gate.acquire(timeout=max(0.0, patience))
        self._delivery.stopping.set()
        self._leave_query()
        if finished:
            self._gate.release()
        self._delivery.destination.finish(max(0.0, until - time.monotonic()))
        return finished

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

    def stalled_for(self) -> float:
        """Seconds without progress of the current batch's tasks; 0 if none run."""
        return self._watch.stalled_for()

    def cancel_hung_job(self) -> None:
        """Cancel a job whose tasks make no progress. Raises ``JvmDied`` if Spark does not end it."""
        self._watch.cancel_hung_job(self._query)

    def _start_beside(self, what: str, run: Callable[[threading.Event], None]) -> threading.Thread:
        """In a thread of its own, until the route has ended."""
        beside = threading.Thread(target=run, name=f"{what}-{self.plan.name}", args=(self._ended,), daemon=True)
        beside.start()
        return beside

    def _control(self) -> RouteControl:
        return RouteControl(self._delivery.log, self._ledger, self.plan)

    def _run(self) -> None:
        following = _Next.QUERY
        while following is _Next.QUERY and not self._delivery.stopping.is_set():
            started = time.monotonic()
            try:
                self._begin_query().awaitTermination()
                following = self._after_end(started)
            except Exception as ended:
                # Spark returns what a batch raised as text only.
                following = self._after_error(self._cause.take(), ended, started)
        if following is not _Next.LEAVE:
            self._note(RouteState.STOPPED)
            events.route_stopped(self.plan.name)

    def _begin_query(self) -> StreamingQuery:
        self._note(RouteState.STARTING)
        self._reconcile_history()
        self._return_to_target()
        self._query = self._start_query()
        if self._delivery.stopping.is_set():
            # `stop` found no query yet.
            self._query.stop()
        self._note(RouteState.RUNNING, after=RouteState.STARTING)
        if not self._is_announced:
            events.route_started(self.plan.name)
            self._is_announced = True
        return self._query

    def _after_end(self, started: float) -> _Next:
        """A query has ended by itself, or was told to."""
        stopping, pace = self._delivery.stopping, self._pace
        if self._retries.target_went_back.is_set() and not stopping.is_set():
            self._retries.target_went_back.clear()
            return _Next.QUERY
        if pace.has_end and not stopping.is_set():
            self._release_log()
        if pace.in_rounds and not pace.once:
            stopping.wait(max(0.0, started + pace.every - time.monotonic()))
            return _Next.QUERY
        self.finished = pace.once and self._wait_for_the_rest()
        return _Next.STOP

    def _after_error(self, cause: Exception | None, ended: Exception, started: float) -> _Next:
        """A query has ended with an error; ``cause``: what was raised within, if that is known."""
        stopping, went_back = self._delivery.stopping, self._retries.target_went_back
        if isinstance(cause, Halted):
            return _Next.LEAVE if self._pace.once or not self._wait_for_resume() else _Next.QUERY
        if isinstance(cause, BeginAnew):
            self._unmute()
            return _Next.QUERY
        if went_back.is_set() or isinstance(cause, TargetWentBackError):
            if not went_back.is_set():
                events.target_went_back(self.plan.name, str(cause))
            went_back.clear()
            self._unmute()
            return _Next.QUERY
        if isinstance(cause, StateBehind):
            self._state.note_behind()
            self._unmute()
            if self._crashes.is_last(cause):
                events.route_gave_up(self.plan.name, "its state does not fit its ledger", self._crashes.total)
                return _Next.LEAVE
            stopping.wait(self._backoff.next())
            return _Next.QUERY
        if isinstance(cause, OutOfPatience):
            self._unmute()
            events.route_out_of_patience(self.plan.name, str(cause))
            return _Next.LEAVE
        return _Next.STOP if stopping.is_set() else self._after_crash(cause or ended, started)

    def _after_crash(self, error: Exception, started: float) -> _Next:
        """Whatever ended the query, the route must start again: data waits in the log."""
        if time.monotonic() - started > LONG_RUN:
            self._backoff.reset()
        wait, reason = self._backoff.next(), reason_of(error)
        if isinstance(error, TRANSIENT):
            self._unmute()
        self._note(RouteState.CRASHED, reason)
        if self._crashes.is_last(error):
            events.route_gave_up(self.plan.name, reason, self._crashes.total)
            return _Next.LEAVE
        events.route_crashed(self.plan.name, reason, wait)
        self._is_announced = False
        self._delivery.stopping.wait(wait)
        return _Next.QUERY

    def _start_query(self) -> StreamingQuery:
        plan, pace, checkpoint = self.plan, self._pace, self._checkpoint
        self._state.recover()
        if plan.holding:
            keep_state_name(checkpoint.select(), plan.state_name or "")
            find_moved_state(checkpoint.select())
            if pace.once:
                self._control().tell_once()
            plan = replace(plan, deadly_records=checkpoint.deadly_records())
        options, folder = checkpoint.read_options(pace), checkpoint.select()
        return start_query(self._spark, plan, self._delivery.log, pace, options, folder, self._batches.run_batch)

    def _leave_query(self) -> None:
        query = self._query
        if query is not None:
            query.stop()

    def _unmute(self) -> None:
        """Let Spark log again what ends the route's query."""
        unmute_query_errors(self._spark, self.plan.name)

    def _return_to_target(self) -> None:
        """Go back to where the target says it is, if it is behind."""
        try:
            self._retries.return_to_target()
        except Stopped as stopped:
            self._cause.note(stopped)
            raise

    def _reconcile_history(self) -> None:
        """Check whether the route may go on with what it finds, and settle what it has adopted."""
        try:
            self._delivery.check_history()
            if self._ledger.adopted_batches(self.plan.name):
                open_route(self._delivery.log, self._ledger, self.plan.name, self.plan.sources)
                settle_adopted(self._delivery)
        except Exception as error:
            self._cause.note(error)
            raise

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

    def _release_log(self) -> None:
        """Release all that is committed: after a query has ended, Spark does not even ask for its last batch again."""
        positions = self._ledger.offsets(self.plan.name)
        self._delivery.log.holds.set(self.plan.name, {p: position.committed for p, position in positions.items()})

    def _wait_for_resume(self) -> bool:
        """Wait until an operator resumes the route. ``False`` if the engine stops first: the route stays halted."""
        route, stopping = self.plan.name, self._delivery.stopping
        self._halted.set()
        self._unmute()
        while not stopping.wait(RESUME_CHECK_EVERY):
            try:
                activity = self._ledger.activity(route)
            except SQLAlchemyError as error:
                events.ledger_unavailable(route, reason_of(error))
                continue
            if activity is None or activity.state is not RouteState.HALTED:
                self._halted.clear()
                self._is_announced = False
                events.route_resumed(route)
                return True
        return False

    def _note(self, state: RouteState, message: str = "", after: RouteState | None = None) -> None:
        """Note the route's state in the ledger. An unavailable ledger must not end the thread that waits for it."""
        try:
            self._ledger.set_state(self.plan.name, state, message, after)
        except SQLAlchemyError as error:
            events.ledger_unavailable(self.plan.name, reason_of(error))
