"""What a running engine tells the holding step of a route: the time, and what to let go of."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from threading import Event

from penstock.backoff import Reminder
from penstock.engine import events
from penstock.engine.ledger import Ledger
from penstock.engine.route_plan import RoutePlan
from penstock.engine.stateful.control import ControlWriter
from penstock.engine.stateful.releases import Releases
from penstock.log.local_log import LocalLog

RELEASE_CHECK_EVERY = 1.0
"""Seconds between checks whether something is to be released."""


class RouteControl:
    """For a route with a holding step. Only one of its two methods may run at a time: the route's control records have
    one writer."""

    def __init__(self, log: LocalLog, ledger: Ledger, plan: RoutePlan) -> None:
        self._ledger = ledger
        self._route = plan.name
        self._tick_every = plan.holding_step().tick_every or math.inf
        self._writer = ControlWriter(log, plan.name)
        self._releases = Releases(log, ledger, plan, self._writer)
        self._reminder = Reminder()

    def release_once(self) -> None:
        """Before a run that ends with what is in the log then. It does not wait for a time, so it needs no ticks."""
        with self._writer:
            self._releases.release_due()

    def keep_telling(self, ended: Event) -> None:
        """Until ``ended``: ticks while something waits for a time, and releases when they are due. A log or ledger
        that is unavailable is tried again when the next one is."""
        release_due = time.monotonic()
        tick_due = release_due + self._tick_every
        with self._writer:
            while not ended.wait(max(0.0, min(tick_due, release_due) - time.monotonic())):
                now = time.monotonic()
                if now >= tick_due:
                    tick_due = now + self._tick_every
                    self._try(self._tick)
                if now >= release_due:
                    release_due = now + RELEASE_CHECK_EVERY
                    self._try(self._releases.release_due)

    def _tick(self) -> None:
        if self._ledger.held(self._route):
            self._writer.tick()

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            # Whatever it is: without this thread, what waits would wait for ever.
            if self._reminder.is_due(time.monotonic()):
                events.control_failed(self._route, next(iter(str(error).splitlines()), type(error).__name__))
