"""The engine: runs every route of a pipeline in one Spark session, and retention beside them."""

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
from penstock.config.value_types.listen_address import split_address
from penstock.engine import events
from penstock.engine.background_compaction import BackgroundCompaction
from penstock.engine.delivery.deliver_batch import Delivery
from penstock.engine.history.left_routes import left_route
from penstock.engine.ledger import RouteState
from penstock.engine.pipeline import Pipeline
from penstock.engine.processes.early_exit import exit_early_on_stop, has_waiting_tables, nothing_to_deliver
from penstock.engine.processes.engine_start import EngineStart, start_engine
from penstock.engine.processes.heartbeat_writer import HeartbeatWriter
from penstock.engine.running.route_pace import Pace
from penstock.engine.running.route_runner import RouteRunner
from penstock.engine.spark.jvm import JvmDied
from penstock.engine.spark.spark_session import Jvm, build_session
from penstock.engine.steady_clock import SteadyClock
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RETENTION_EVERY = 60.0
JVM_CHECK_EVERY = 0.5


class Engine:
    """Runs all routes of a pipeline in this process until ``stopping`` is set, or with ``once`` to their end.

    ``leave``: ends the process; called on a stop when nothing is to deliver, whatever Spark is doing. Without it the
    engine waits for Spark.
    ``patience``: seconds after which a route gives up a destination that stays unavailable; without it the route waits.
    ``start``: what was begun for it already.
    ``may_begin``: set when the routes may begin; without it they begin when Spark is there.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        once: bool = False,
        patience: float | None = None,
        leave: Callable[[], None] | None = None,
        start: EngineStart | None = None,
        may_begin: Event | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._once = once
        self._patience = patience
        self._leave = leave
        self._start = start
        self._may_begin = may_begin
        self._clock = SteadyClock(pipeline.layout.run / "clock.json")
        self._compaction = BackgroundCompaction(pipeline.log)
        self._runners: Sequence[RouteRunner] = ()
        self._runs = Event()
        self._heartbeat = HeartbeatWriter(pipeline.layout.run, os.getpid(), len(pipeline.config.routes))

    def run(self, stopping: Event) -> bool:
        """Returns whether everything that was begun was finished."""
        start = self._start or start_engine(self._pipeline.config)
        self._pipeline.check_log()
        self._note_starting()
        self._heartbeat.start()
        if self._leave is None:
            return self._run(start, stopping)
        with exit_early_on_stop(stopping, self._may_leave, self._runs, self._leave):
            return self._run(start, stopping)

    def _run(self, start: EngineStart, stopping: Event) -> bool:
        config = self._pipeline.config
        events.waiting_for_spark(slowly=start.jvm is not None and start.jvm.lacks_archive)
        began = time.monotonic()
        spark = build_session(start.settings, start.jvm)
        events.spark_started(time.monotonic() - began)
        jvm = Jvm(spark)
        self._heartbeat.ping_jvm = jvm.ping
        try:
            start.lock.note_jvm(jvm.pid)
            self._wait_to_begin(stopping, jvm)
            runners = [self._build_runner(spark, name, route) for name, route in config.routes.items()]
            self._runners = runners
            if config.engine.metrics is not None:
                events.serve_metrics(*split_address(config.engine.metrics))
            for runner in runners:
                runner.start()
            for route in self._pipeline.left_routes():
                left = left_route(self._pipeline, route)
                events.route_left(route, left.lag, left.waiting, left.held)
            self._runs.set()
            self._heartbeat.running = True
            self._heartbeat.stalled_routes = lambda: {runner.plan.name: runner.stalled_for() for runner in runners}
            if self._once:
                finished = self._run_to_end(runners, stopping, jvm)
                if not stopping.is_set():
                    self._apply_retention()
                return finished
            self._run_until(stopping, jvm)
            return self._drain(runners, jvm)
        finally:
            self._heartbeat.stop()
            if jvm.alive and not self._ends_with_process():
                spark.stop()
                start.lock.release()

    def _ends_with_process(self) -> bool:
        """Whether Spark is left to the end of this process: to stop one that has nothing left to do takes a second."""
        finished = all(runner.finished and not runner.is_alive() for runner in self._runners)
        return finished and self._leave is not None and not self._pipeline.config.engine.spark

    def _note_starting(self) -> None:
        """Reset the states that a killed engine left: it takes a while until the routes start."""
        for route in self._pipeline.config.routes:
            self._pipeline.ledger.set_state(route, RouteState.STARTING)

    def _wait_to_begin(self, stopping: Event, jvm: Jvm) -> None:
        if self._may_begin is None or self._may_begin.is_set():
            return
        events.waiting_for_sources()
        while not self._may_begin.wait(0.05) and not stopping.is_set():
            jvm.check()

    def _may_leave(self) -> bool:
        delivering = any(runner.is_delivering for runner in self._runners)
        return not delivering and nothing_to_deliver(self._pipeline, self._once)

    def _build_runner(self, spark: SparkSession, name: str, config: RouteConfig) -> RouteRunner:
        pipeline, plan = self._pipeline, self._pipeline.plan(name)
        plan.check_steps()
        destination = plan.destination()
        # Report a cast or template that the destination cannot use now, in words, and not in every task.
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
        gathers = config.to.gathers_for is not None and not in_rounds
        pace = Pace(config.interval, config.max_records, config.max_bytes, self._once, in_rounds, gathers)
        backoff = Backoff(first=pipeline.config.engine.restart_backoff, cap=pipeline.config.engine.restart_backoff_max)
        return RouteRunner(spark, delivery, pipeline.layout, pace, backoff)

    def _run_until(self, stopping: Event, jvm: Jvm) -> None:
        due = time.monotonic() + RETENTION_EVERY
        while not stopping.wait(JVM_CHECK_EVERY):
            self._check_health(jvm)
            if time.monotonic() >= due:
                self._apply_retention()
                due = time.monotonic() + RETENTION_EVERY

    def _check_health(self, jvm: Jvm) -> None:
        jvm.check()
        try:
            for runner in self._runners:
                runner.cancel_hung_job()
        except JvmDied:
            # It would not obey a normal stop either.
            jvm.kill()
            raise

    def _apply_retention(self) -> None:
        try:
            floors = self._pipeline.floors()
            settles = self._pipeline.config.log.retention.max_age or 0.0
            now = datetime.fromtimestamp(self._clock.now(settles), UTC)
            removed = self._pipeline.log.apply_retention(floors, now)
        except (PenstockError, OSError, SQLAlchemyError) as error:
            # A disk that is not freed does not stop delivery.
            events.retention_failed(str(error))
            return
        if removed:
            events.log_released(len(removed), sum(segment.bytes for segment in removed))
        if self._pipeline.config.log.compaction:
            # A ``once`` run waits for compaction: in the background each run would interrupt it again.
            (self._compaction.run if self._once else self._compaction.start)(floors)

    def _run_to_end(self, runners: Sequence[RouteRunner], stopping: Event, jvm: Jvm) -> bool:
        while any(runner.is_alive() for runner in runners):
            self._check_health(jvm)
            if stopping.wait(0.05):
                return self._drain(runners, jvm) and not has_waiting_tables(self._pipeline)
        return all(runner.finished for runner in runners)

    def _drain(self, runners: Sequence[RouteRunner], jvm: Jvm) -> bool:
        """Stream routes deliver what the log holds, batch routes finish their batch, as far as time allows."""
        deadline = time.monotonic() + self._pipeline.config.engine.drain
        streams = [r for r in runners if self._pipeline.config.routes[r.plan.name].mode == "stream"]
        for runner in streams:
            runner.flush_if_asked()
        while time.monotonic() < deadline and not all(r.halted or not r.is_alive() or r.caught_up() for r in streams):
            self._check_health(jvm)
            time.sleep(0.05)
        finished = [runner.stop(deadline - time.monotonic()) for runner in runners]
        for runner in runners:
            runner.join(timeout=max(1.0, deadline - time.monotonic()))
        return all(finished)
