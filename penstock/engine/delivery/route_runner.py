"""A route at work: one Spark streaming query, kept running, its batches delivered by the batch protocol."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.exc import OperationalError, SQLAlchemyError

from penstock.backoff import Backoff
from penstock.engine import events
from penstock.engine.delivery.batch_pieces import Ranges, left_of, span
from penstock.engine.delivery.batch_protocol import Delivery, Halted, OutOfPatience, Stopped, clean_stage
from penstock.engine.delivery.log_gaps import open_route
from penstock.engine.delivery.passed_records import Stretches
from penstock.engine.delivery.task import reports_left
from penstock.engine.delivery.task_report import BatchReport, TaskReport, add_up
from penstock.engine.layout import Layout
from penstock.engine.ledger import Ledger, RouteState
from penstock.engine.lost_workers.isolation import Apart
from penstock.engine.lost_workers.lost_worker import NO_CONNECTION, STALLED, lost_worker
from penstock.engine.lost_workers.task_note import traces
from penstock.engine.lost_workers.trial_process import Trial, TrialServer
from penstock.engine.processes.idle_timer import Stillness
from penstock.engine.retry_lane.retrier import RetryLane
from penstock.engine.route_plan import RoutePlan
from penstock.engine.spark.route_source import route_source, through_spark
from penstock.engine.spark.spark_checkpoints import batch_end
from penstock.engine.spark.spark_session import JvmDied, cancel_jobs, loud_queries, quiet_queries
from penstock.errors import LedgerAway, TransientError
from penstock.log.spark_source import LogSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


LOOK_AT_TABLES_EVERY = 0.2
"""Seconds between looks at whether a table that a run with an end waits for is due."""
RESUME_CHECK_EVERY = 0.5
"""Seconds between looks at whether an operator has let a halted route go on."""
STALL_GRACE = 30.0
"""Seconds beyond the limit of a step after which its task is given up, and Spark, if it does not let go of it."""
ONCE_TRIES = 5
"""How often in a row a route may crash in a run that is to come to an end."""

ONCE_TRIES_WHEN_BUSY = 20
"""How often, if it was only that a process of Spark's was slow to start."""

_STARTING = threading.Lock()
"""A query takes the session's settings with it when it starts."""

_PASSING = (TransientError, LedgerAway, OperationalError)
"""What passes by itself when the database that is away comes back."""


@dataclass(frozen=True)
class Pace:
    """How a route takes from the log: how often, and how much at a time."""

    every: float
    max_records: int
    max_bytes: int
    once: bool = False
    """Take what is there now, then end."""
    in_rounds: bool = False
    """Take everything that is there, in as many batches as it needs, then rest until the next round is due."""


class RouteRunner(threading.Thread):
    """Runs one route until ``stop``; with a pace of ``once``, until what was there is delivered.

    A query that ends with an error is started again after a growing pause: the range it was on is fixed, so it goes on
    exactly there. Only a ``once`` run gives up, after ``ONCE_TRIES`` crashes without a batch between them; errors that
    pass by themselves do not count, but may not last longer than the delivery's patience. ``finished`` tells whether a
    ``once`` run came to its end.

    A route that halts at a record is not started again until an operator says so, through the ledger.
    """

    def __init__(self, spark: SparkSession, delivery: Delivery, layout: Layout, pace: Pace, backoff: Backoff) -> None:
        super().__init__(name=f"route-{delivery.plan.name}", daemon=True)
        self._spark = spark
        self._trials = TrialServer(delivery.plan, layout.log)
        self._delivery = replace(delivery, carry_again=Apart(self._carry_apart, delivery.plan.step_timeout).carry)
        self._anew = replace(delivery.plan, stage_dir=layout.stage_anew(delivery.plan.name))
        self._trials_anew = TrialServer(self._anew, layout.log)
        self._layout = layout
        self._pace = pace
        self._backoff = backoff
        self._gate = threading.Lock()
        carry_anew = Apart(self._carry_anew, delivery.plan.step_timeout).carry
        beside = replace(self._delivery, plan=self._anew, carry_again=carry_anew)
        waiting = layout.stage_of_waiting(delivery.plan.name)
        # A process takes seconds to start: while tables catch up, theirs is kept between the parts.
        self._lane = RetryLane(beside, self._carry_waiting, waiting, self._trials_anew.close)
        self._ended = threading.Event()
        self._query: StreamingQuery | None = None
        self._stillness = Stillness()
        self._carrying: float | None = None
        self._cut_off: float | None = None
        self._crashes: Counter[bool] = Counter()
        """Since the last batch, apart for those that were only slow to start."""
        self._cause: Exception | None = None
        self.finished = False
        self.halted = False

    @property
    def plan(self) -> RoutePlan:
        return self._delivery.plan

    @property
    def _ledger(self) -> Ledger:
        return self._delivery.ledger

    def run(self) -> None:
        for left in (self._layout.stage_of_waiting(self.plan.name), self._anew.stage_dir):
            clean_stage(left)
        name = f"retries-{self.plan.name}"
        lane = threading.Thread(target=self._lane.keep_trying, args=(self._ended,), name=name, daemon=True)
        lane.start()
        try:
            self._run()
        finally:
            self._ended.set()

    def _run(self) -> None:
        route, stopping, backoff = self.plan.name, self._delivery.stopping, self._backoff
        said = False
        while not stopping.is_set():
            started = time.monotonic()
            try:
                self._note(RouteState.STARTING)
                self._agree()
                self._query = self._start()
                if stopping.is_set():
                    # Who stopped the route found no query yet.
                    self._query.stop()
                self._note(RouteState.RUNNING, after=RouteState.STARTING)
                if not said:
                    events.route_started(route)
                    said = True
                self._query.awaitTermination()
                if (self._pace.once or self._pace.in_rounds) and not stopping.is_set():
                    self._release()
                if self._pace.in_rounds and not self._pace.once:
                    stopping.wait(max(0.0, started + self._pace.every - time.monotonic()))
                    continue
                self.finished = self._pace.once and self._lets_nothing_wait()
                break
            except Exception as ended:
                if isinstance(self._cause, Halted):
                    self._cause = None
                    if self._pace.once or not self._resumed():
                        return
                    said = False
                    continue
                if isinstance(self._cause, OutOfPatience):
                    # Its state in the ledger stays: what it waits for.
                    loud_queries(self._spark)
                    events.route_out_of_patience(route, str(self._cause))
                    return
                # Whatever else ended the query, the route must not stay down for it: data waits in the log meanwhile.
                if stopping.is_set():
                    break
                if time.monotonic() - started > 60:
                    backoff.reset()
                # What a batch raised comes back from Spark as text only.
                error, self._cause = self._cause or ended, None
                wait, reason = backoff.next(), reason_of(error)
                self._note(RouteState.CRASHED, reason)
                if self._gives_up(error):
                    events.route_gave_up(route, reason, self._crashes.total())
                    return
                events.route_crashed(route, reason, wait)
                said = False
                stopping.wait(wait)
        self._note(RouteState.STOPPED)
        events.route_stopped(route)

    def _lets_nothing_wait(self) -> bool:
        """Wait until the tables that are away have got what they wait for. ``False`` if that takes too long."""
        stopping, patience = self._delivery.stopping, self._delivery.patience
        while waiting := self._ledger.waiting_tables(self.plan.name):
            if not self._delivery.agreed:
                self._agree()
            if patience.is_over():
                events.route_out_of_patience(self.plan.name, f"tables are still away: {', '.join(sorted(waiting))}")
                return False
            if stopping.wait(LOOK_AT_TABLES_EVERY):
                return False
        return True

    def _carry_waiting(self, ranges: Ranges, passed_over: Stretches) -> BatchReport:
        return self._lane.delivery.carry_anew(ranges, passed_over)

    def _agree(self) -> None:
        """Ask whether the route may go on with what it finds, and settle what it has taken over."""
        try:
            self._delivery.check_history()
            if self._ledger.adopted(self.plan.name):
                open_route(self._delivery.log, self._ledger, self.plan.name, self.plan.sources)
                self._delivery.settle_adopted()
        except Exception as error:
            self._cause = error
            raise

    def _release(self) -> None:
        """Of a query that came to its end Spark asks for nothing again, not even for its last batch."""
        positions = self._ledger.offsets(self.plan.name)
        self._delivery.log.holds.set(self.plan.name, {p: position.committed for p, position in positions.items()})

    def _resumed(self) -> bool:
        """Wait until an operator lets the route go on. ``False`` if the engine stops first: the route stays halted."""
        route, stopping = self.plan.name, self._delivery.stopping
        self.halted = True
        loud_queries(self._spark)
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

    def _gives_up(self, error: Exception) -> bool:
        if isinstance(error, _PASSING):
            return self._delivery.patience.is_over()
        # Spark gives a Python process ten seconds to start, which is too few where everything is busy.
        slow = NO_CONNECTION in str(error)
        self._crashes[slow] += 1
        return self._pace.once and self._crashes[slow] >= (ONCE_TRIES_WHEN_BUSY if slow else ONCE_TRIES)

    def stop(self, patience: float) -> bool:
        """Let the batch that is being delivered finish, for ``patience`` seconds at most, and end the query.

        Returns whether nothing was cut short. What was cut short is in the log and is delivered at the next start.
        """
        finished = self._gate.acquire(timeout=max(0.0, patience))
        self._delivery.stopping.set()
        query = self._query
        if query is not None:
            query.stop()
        if finished:
            self._gate.release()
        return finished

    @property
    def delivers(self) -> bool:
        """Whether it is on a batch now."""
        return self._gate.locked()

    def caught_up(self) -> bool:
        """Whether everything that the log holds for this route has been delivered."""
        log, positions = self._delivery.log, self._ledger.offsets(self.plan.name)
        return all(
            partition in positions and positions[partition].committed >= log.bounds(partition).end
            for partition in log.partitions(self.plan.sources)
            if log.bounds(partition).end > 0
        )

    def _note(self, state: RouteState, message: str = "", after: RouteState | None = None) -> None:
        """Tell the ledger how the route is doing. A ledger that is away must not end the thread that waits for it."""
        try:
            self._ledger.note(self.plan.name, state, message, after)
        except SQLAlchemyError as error:
            events.ledger_unavailable(self.plan.name, reason_of(error))

    def _start(self) -> StreamingQuery:
        plan, pace = self.plan, self._pace
        source = route_source(plan)
        self._spark.dataSource.register(source)
        reader = self._spark.readStream.format(source.name()).options(**self._options())
        # Taken over by the query's thread: each route's tasks get their share of the cores.
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", plan.name)
        writer = reader.load().writeStream.queryName(plan.name).option("checkpointLocation", str(self._checkpoint()))
        if pace.once or pace.in_rounds:
            writer = writer.trigger(availableNow=True)
        else:
            # Spark's own interval goes by the wall clock: one that is set back would have it sleep for hours. So it is
            # told to go on at once, `_take` keeps the pace, and this is how often it looks while there is nothing.
            writer = writer.trigger(processingTime="0 seconds")
        with _STARTING:
            self._spark.conf.set("spark.sql.streaming.pollingDelay", _interval(pace.every))
            return writer.foreachBatch(self._take).start()

    def _checkpoint(self) -> Path:
        """The checkpoint that counts. Those from before the route was moved back go: their offsets hold no more."""
        route, scope = self.plan.name, self._ledger.scope
        generation = self._ledger.generation(route)
        for earlier in range(generation):
            shutil.rmtree(self._layout.checkpoint(route, scope, earlier), ignore_errors=True)
        return self._layout.checkpoint(route, scope, generation)

    def _options(self) -> dict[str, str]:
        route = self.plan.name
        positions = open_route(self._delivery.log, self._ledger, route, self.plan.sources)
        starts = {partition: position.committed for partition, position in positions.items()}
        options = {
            "path": str(self._layout.log),
            "sources": ",".join(self.plan.sources),
            "consumer": route,
            "startingOffsets": _json(starts),
            "maxRecordsPerTrigger": str(self._pace.max_records),
            "maxBytesPerTrigger": str(self._pace.max_bytes),
        }
        pending = self._ledger.pending(route)
        if pending is not None:
            # The checkpoint fixes ranges too, but may be gone; the ledger's word must hold without it.
            # What it has of sources that the route no longer reads is not Spark's matter.
            fixed = {p: stretch for p, stretch in pending.ranges.items() if p in starts}
            begun = {**starts, **{p: start for p, (start, _) in fixed.items()}}
            ended = {**begun, **{p: end for p, (_, end) in fixed.items()}}
            options["fixedRange"] = json.dumps({"start": _text_keys(begun), "end": _text_keys(ended)})
        return options

    def _take(self, frame: DataFrame, number: int) -> None:
        with self._gate:
            if self._delivery.stopping.is_set():
                quiet_queries(self._spark)
                raise Stopped
            began = time.monotonic()
            clean_stage(self.plan.stage_dir)
            try:
                self._deliver(frame, number, began)
            except Stopped as stopped:
                self._cause = stopped
                quiet_queries(self._spark)
                raise
            except Exception as error:
                self._cause = error
                raise
            self._crashes.clear()
            self._delivery.patience.reset()
            clean_stage(self.plan.stage_dir)
        if not (self._pace.once or self._pace.in_rounds):
            self._delivery.stopping.wait(max(0.0, began + self._pace.every - time.monotonic()))

    def still_for(self) -> float:
        """Seconds for which the tasks of the batch that is carried have not moved; 0 if none is."""
        carrying = self._carrying
        moved = None if carrying is None else [trace.moved for trace in traces(self.plan.stage_dir)]
        still = self._stillness.look((carrying, moved), time.monotonic())
        return 0.0 if carrying is None else still

    def cut_off_what_hangs(self) -> None:
        """End a job whose tasks do not move: a task ends itself when its steps take too long, but not if its process
        was stopped. Raises ``JvmDied`` if even that is of no use."""
        limit, still, query = self.plan.step_timeout, self.still_for(), self._query
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
            self._carrying = began
            report = self._carried(self.plan, frame)
            self._carrying = None
        except Exception as error:
            lost = lost_worker(error, traces(self.plan.stage_dir))
            if lost is None:
                raise
            self._carrying = None
            ranges = self._asked_for(number)
            events.worker_lost(self.plan.name, ranges, str(lost))
            apart = Apart(self._carry_apart, self.plan.step_timeout, span(ranges), lost)
            replace(self._delivery, carry_again=apart.carry).deliver_apart(ranges, began)
        else:
            self._delivery.deliver(report, began)
        finally:
            self._carrying = None
            self._trials.close()

    def _carry_apart(self, ranges: Ranges, limit: float | None) -> BatchReport:
        """Carry a part of a batch where its records can harm nobody: by Spark if a step runs there."""
        if not self.plan.rest:
            return self._trials.carry(Trial(ranges, limit))
        return self._carried_again(self.plan, route_source(self.plan), ranges)

    def _carry_anew(self, ranges: Ranges, limit: float | None) -> BatchReport:
        """The same for what a table waits for, beside the batch that is under way."""
        if not self._anew.rest:
            return self._trials_anew.carry(Trial(ranges, limit))
        source = route_source(self._anew, "waiting")
        self._spark.dataSource.register(source)
        return self._carried_again(self._anew, source, ranges)

    def _asked_for(self, number: int) -> Ranges:
        """What of Spark's batch is not behind the route: it ends where the checkpoint says, as Spark fixed it before it
        began."""
        end = batch_end(self._checkpoint(), number)
        committed = {p: position.committed for p, position in self._ledger.offsets(self.plan.name).items()}
        return left_of({p: (0, stop) for p, stop in end.items()}, committed)

    def _carried_again(self, plan: RoutePlan, source: type[LogSource], ranges: Ranges) -> BatchReport:
        """Run the tasks of a part of a batch, whose steps need Spark, as a job of its own. Raises ``WorkerLost``."""
        others = dict.fromkeys(self._delivery.log.partitions(self.plan.sources), (0, 0))
        whole = {**others, **ranges}
        options = {
            "path": str(self._layout.log),
            "sources": ",".join(self.plan.sources),
            "startingOffsets": _json({p: start for p, (start, _) in whole.items()}),
            "endingOffsets": _json({p: end for p, (_, end) in whole.items()}),
        }
        try:
            return self._carried(plan, self._spark.read.format(source.name()).options(**options).load())
        except Exception as error:
            lost = lost_worker(error, traces(plan.stage_dir))
            if lost is None:
                raise
            raise lost from error

    def _carried(self, plan: RoutePlan, frame: DataFrame) -> BatchReport:
        """Run the batch's tasks and add up their reports: a row per task, never data."""
        if not plan.rest:
            return add_up(_reports(frame))
        staged = _reports(through_spark(plan, frame))
        passed = reports_left(plan)
        total = add_up([*staged, *passed])
        read = [report for report in passed if report.partition is not None]
        items = sum(report.items for report in read)
        difference = items + sum(total.added.values()) - total.staged - sum(total.skipped.values()) - total.failed_rows
        label = "+".join(step.label for step in plan.rest if not step.is_arrow)
        skipped = {**total.skipped, **({label: difference} if difference > 0 else {})}
        added = {**total.added, **({label: -difference} if difference < 0 else {})}
        return replace(total, items=items, skipped=skipped, added=added)


def reason_of(error: BaseException) -> str:
    """The line of an error that says what happened, without the traces around it that Spark adds."""
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


def _reports(frame: DataFrame) -> list[TaskReport]:
    return [TaskReport.from_json(row.report) for row in frame.collect()]


def _interval(seconds: float) -> str:
    return f"{max(1, round(seconds * 1000))}ms"


def _text_keys(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def _json(offsets: Mapping[int, int]) -> str:
    return json.dumps(_text_keys(offsets))
