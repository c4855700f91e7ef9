"""The engine: one Spark session, every route of the pipeline in it, retention beside them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from threading import Event
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError

from penstock.backoff import Backoff, Patience
from penstock.config.pipeline_config import RouteConfig, RouteMode
from penstock.config.values.listen_address import split_address
from penstock.engine import events
from penstock.engine.background_compaction import Compacting
from penstock.engine.delivery.batch_protocol import Delivery
from penstock.engine.delivery.route_runner import Pace, RouteRunner
from penstock.engine.history.left_routes import left_route
from penstock.engine.ledger import RouteState
from penstock.engine.pipeline import Pipeline
from penstock.engine.processes.early_exit import leaving_in_time, nothing_to_deliver, tables_wait
from penstock.engine.processes.engine_lock import EngineLock
from penstock.engine.processes.heartbeat_writer import Pulse
from penstock.engine.spark.first_job import run_first_job
from penstock.engine.spark.spark_session import Jvm, JvmDied, build_session, slots, start_in_words
from penstock.engine.steady_clock import SteadyClock
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RETENTION_EVERY = 60.0
JVM_CHECK_EVERY = 0.5


class Engine:
    """Runs all routes of a pipeline in this process until ``stopping`` is set, or with ``once`` to their end.

    ``leave``: ends the process, called when it is told to stop and nothing is to deliver, whatever Spark is at; none,
    and Spark is waited for.
    ``patience``: seconds after which a route gives up a destination that stays away; none, and it waits.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        once: bool = False,
        patience: float | None = None,
        leave: Callable[[], None] | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._once = once
        self._patience = patience
        self._leave = leave
        self._lock = EngineLock(pipeline.layout.run)
        self._clock = SteadyClock(pipeline.layout.run / "clock.json")
        self._compacting = Compacting(pipeline.log)
        self._runners: Sequence[RouteRunner] = ()
        self._runs = Event()
        self._pulse = Pulse(pipeline.layout.run, os.getpid(), len(pipeline.config.routes))

    def run(self, stopping: Event) -> bool:
        """Returns whether everything that was begun was finished."""
        self._lock.take()
        self._pipeline.check_log()
        self._note_starting()
        self._pulse.start()
        if self._leave is None:
            return self._run(stopping)
        with leaving_in_time(stopping, self._may_leave, self._runs, self._leave):
            return self._run(stopping)

    def _run(self, stopping: Event) -> bool:
        config, layout = self._pipeline.config, self._pipeline.layout
        master = slots(config.engine.master, os.cpu_count() or 1, len(config.routes), self._most_tasks())
        spark = build_session(config.name, master, layout.run / "spark", config.engine.spark)
        jvm = Jvm(spark)
        self._pulse.ask = jvm.answer
        try:
            self._lock.note_jvm(jvm.pid)
            with start_in_words():
                run_first_job(spark)
            runners = [self._runner(spark, name, route) for name, route in config.routes.items()]
            self._runners = runners
            if config.engine.metrics is not None:
                events.show_metrics(*split_address(config.engine.metrics))
            for runner in runners:
                runner.start()
            for route in self._pipeline.left_routes():
                left = left_route(self._pipeline, route)
                events.route_left(route, left.lag, left.waiting)
            self._runs.set()
            self._pulse.running = True
            self._pulse.still = lambda: {runner.plan.name: runner.still_for() for runner in runners}
            if self._once:
                whole = self._to_the_end(runners, stopping, jvm)
                if not stopping.is_set():
                    self._release()
                return whole
            self._until(stopping, jvm)
            return self._drain(runners, jvm)
        finally:
            self._pulse.end()
            if jvm.alive:
                spark.stop()
                self._lock.release()

    def _note_starting(self) -> None:
        """Take back what an engine that was killed had said of the routes: it takes a while until they start."""
        for route in self._pipeline.config.routes:
            self._pipeline.ledger.note(route, RouteState.STARTING)

    def _may_leave(self) -> bool:
        return not any(runner.delivers for runner in self._runners) and nothing_to_deliver(self._pipeline, self._once)

    def _runner(self, spark: SparkSession, name: str, config: RouteConfig) -> RouteRunner:
        pipeline, plan = self._pipeline, self._pipeline.plan(name)
        destination = plan.destination()
        # A cast or a template that the destination cannot use is said now, in words, and not by every task.
        plan.stage_dir.mkdir(parents=True, exist_ok=True)
        destination.stager(plan.stage_dir, plan.casts)
        delivery = Delivery(
            plan,
            destination,
            pipeline.log,
            pipeline.ledger,
            pipeline.failed_store,
            stopping=Event(),
            patience=Patience(self._patience),
            history=pipeline.history(),
        )
        in_rounds = config.mode is RouteMode.BATCH
        pace = Pace(config.interval, config.max_records, config.max_bytes, self._once, in_rounds)
        backoff = Backoff(first=pipeline.config.engine.restart_backoff, cap=pipeline.config.engine.restart_backoff_max)
        return RouteRunner(spark, delivery, pipeline.layout, pace, backoff)

    def _until(self, stopping: Event, jvm: Jvm) -> None:
        due = time.monotonic() + RETENTION_EVERY
        while not stopping.wait(JVM_CHECK_EVERY):
            self._attend(jvm)
            if time.monotonic() >= due:
                self._release()
                due = time.monotonic() + RETENTION_EVERY

    def _attend(self, jvm: Jvm) -> None:
        jvm.check()
        try:
            for runner in self._runners:
                runner.cut_off_what_hangs()
        except JvmDied:
            # It would not listen to a polite end either.
            jvm.kill()
            raise

    def _most_tasks(self) -> int:
        """How many tasks a batch may have: one per worker of a route's sources, and its replays."""
        config = self._pipeline.config
        workers = {name: getattr(source, "workers", 1) for name, source in config.sources.items()}
        return 1 + max((sum(workers[name] for name in route.from_) for route in config.routes.values()), default=0)

    def _release(self) -> None:
        try:
            floors = self._pipeline.floors()
            settles = self._pipeline.config.log.retention.max_age or 0.0
            now = datetime.fromtimestamp(self._clock.now(settles), UTC)
            removed = self._pipeline.log.apply_retention(floors, now)
        except (PenstockError, OSError, SQLAlchemyError) as error:
            # Disk that is not freed is no reason to stop delivering.
            events.retention_failed(str(error))
            return
        if removed:
            events.log_released(len(removed), sum(segment.bytes for segment in removed))
        if self._pipeline.config.log.compaction:
            # A run that has an end waits for it: beside the next one it would be cut off again.
            (self._compacting.run if self._once else self._compacting.start)(floors)

    def _to_the_end(self, runners: Sequence[RouteRunner], stopping: Event, jvm: Jvm) -> bool:
        while any(runner.is_alive() for runner in runners):
            self._attend(jvm)
            if stopping.wait(0.05):
                return self._drain(runners, jvm) and not tables_wait(self._pipeline)
        return all(runner.finished for runner in runners)

    def _drain(self, runners: Sequence[RouteRunner], jvm: Jvm) -> bool:
        """Stream routes deliver what the log holds, batch routes finish what they are on, as far as time allows."""
        deadline = time.monotonic() + self._pipeline.config.engine.drain
        streams = [r for r in runners if self._pipeline.config.routes[r.plan.name].mode == "stream"]
        while time.monotonic() < deadline and not all(r.halted or not r.is_alive() or r.caught_up() for r in streams):
            self._attend(jvm)
            time.sleep(0.05)
        whole = [runner.stop(deadline - time.monotonic()) for runner in runners]
        for runner in runners:
            runner.join(timeout=max(1.0, deadline - time.monotonic()))
        return all(whole)
