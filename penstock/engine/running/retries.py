"""What is tried beside the batches of a route: tables that wait, items that the destination did not take, and whether
the destination still has what it had."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.backoff import Backoff
from penstock.engine import events
from penstock.engine.delivery.batch_writer import wait_for_destination
from penstock.engine.delivery.deliver_batch import Delivery, clean_stage
from penstock.engine.history.target_position import return_to_position
from penstock.engine.layout import Layout
from penstock.engine.ledger import RouteState
from penstock.engine.retry_lane.postponed_retrier import PostponedRetrier
from penstock.engine.retry_lane.retrier import RetryLane
from penstock.engine.retry_lane.turns import TurnLock
from penstock.engine.running.route_tasks import IsolatedTasks
from penstock.errors import TargetWentBackError, TransientError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GATE_PATIENCE = 5.0
"""Seconds to wait for the end of a batch before what waits at the destination is tried; then again a second later."""


class RouteRetries:
    """``run`` in a thread of its own, the rest from the thread of the route."""

    def __init__(
        self,
        spark: SparkSession,
        delivery: Delivery,
        layout: Layout,
        gate: TurnLock,
        halted: threading.Event,
        leave_query: Callable[[], None],
    ) -> None:
        """``gate``: whose turn it is, a batch's or a retry's. ``leave_query`` ends the query, if there is one, so that
        the target is asked again."""
        route = delivery.plan.name
        plan = replace(delivery.plan, stage_dir=layout.retry_stage(route))
        self._delivery = delivery
        # A process takes seconds to start, so the lane keeps its own while tables catch up.
        self._tasks = IsolatedTasks(spark, plan, delivery.log, own_source="waiting")
        beside = replace(delivery, plan=plan, restage_ranges=self._tasks.isolate().stage)
        self._postponed = PostponedRetrier(beside, self._tasks.stage_items)
        self._waiting_stage = layout.waiting_stage(route)
        self._stage = plan.stage_dir
        self.lane = RetryLane(beside, self._waiting_stage, self._retry_postponed, self._tasks.close_if_idle)
        self._gate = gate
        self._halted = halted
        self._leave_query = leave_query
        self._may_retry = threading.Event()
        """Set once the target was asked how far it is: it may have to get again what waits."""
        self.target_went_back = threading.Event()
        """Set if the target has gone back while nothing was delivered: it has to be asked again."""

    def clean(self) -> None:
        """Remove what an earlier process has staged."""
        for left in (self._waiting_stage, self._stage):
            clean_stage(left)

    def run(self, ended: threading.Event) -> None:
        try:
            self.lane.keep_trying(ended)
        finally:
            self._tasks.close()

    def end(self) -> None:
        self._delivery.retry_wanted.set()

    def return_to_target(self) -> None:
        """Go back to where the target says it is, if it is behind. Waits while it cannot be asked. Raises
        ``Stopped``."""
        delivery, backoff = self._delivery, Backoff()
        self._may_retry.clear()
        while not self._may_retry.is_set():
            try:
                with self._gate:
                    return_to_position(delivery.ledger, delivery.log, delivery.plan, delivery.destination)
                self._may_retry.set()
            except TransientError as error:
                wait_for_destination(
                    delivery.ledger, delivery.plan.name, delivery.patience, delivery.stopping, backoff, error
                )
        if backoff.waited:
            delivery.patience.reset()
            delivery.ledger.set_state(delivery.plan.name, RouteState.STARTING)

    def _retry_postponed(self) -> None:
        """Try what waits at the destination, between two batches."""
        delivery, destination = self._delivery, self._delivery.destination
        may_wait = delivery.plan.holding is not None or destination.capabilities.leaves_waiting
        if not may_wait or self._halted.is_set() or not self._may_retry.is_set():
            return
        try:
            if due := destination.look_after():
                delivery.ledger.wake(delivery.plan.name, due)
            self._retry_due()
        except TargetWentBackError as error:
            events.target_went_back(delivery.plan.name, str(error))
            self.target_went_back.set()
            self._leave_query()

    def _retry_due(self) -> None:
        if not self._postponed.has_due():
            return
        # Before the first batch: it may be long until one comes.
        self._delivery.check_history_without_halt()
        if self._delivery.history_agrees:
            self._postponed.retry_due(partial(self._gate.within, GATE_PATIENCE))
