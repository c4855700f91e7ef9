"""What a running engine tells the holding step of a route: the time, and what to let go of."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from threading import Event

from penstock.backoff import Reminder
from penstock.engine import events
from penstock.engine.ledger import Ledger, StepSetting
from penstock.engine.route_plan import RoutePlan
from penstock.engine.route_sources import control_source
from penstock.engine.stateful.control import ControlWriter
from penstock.engine.stateful.releases import Releases
from penstock.log.local_log import LocalLog

RELEASE_CHECK_EVERY = 1.0
"""Seconds between checks whether something is to be released."""


class RouteControl:
    """For a route with a holding step. Only one of its two methods may run at a time: the route's control records have
    one writer."""

    def __init__(self, log: LocalLog, ledger: Ledger, plan: RoutePlan) -> None:
        self._log = log
        self._ledger = ledger
        self._route = plan.name
        self._sources = plan.sources
        self._step = plan.holding_step()
        self._tick_every = self._step.tick_every or math.inf
        self._writer = ControlWriter(log, plan.name)
        self._releases = Releases(log, ledger, plan, self._writer)
        self._reminder = Reminder()
        self._settings: dict[str, StepSetting] = {}
        """As they were told."""

    def tell_once(self) -> None:
        """Before a run that ends with what is in the log then. It waits for no time, but time has passed since the one
        before it."""
        with self._writer:
            self._tick()
            self._try(self._pass_on_news)
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
                    self._try(self._pass_on_news)
                    self._try(self._releases.release_due)

    def _tick(self) -> None:
        """Say what time it is, if something waits for it. Not again before the route has read that: ticks that pile up
        would take the place of records in its batches, and tell it nothing more than the last of them."""
        if self._tick_every < math.inf and self._ledger.held(self._route) and not self._has_unread():
            self._writer.tick()

    def _pass_on_news(self) -> None:
        """Tell the step what it finds elsewhere, and what operators have set since they were last looked at: after a
        start all of it, as the step's state may be new."""
        for key, setting in self._ledger.settings(self._route).items():
            if self._settings.get(key) != setting:
                self._writer.command(setting.command, setting.data.encode())
                self._settings[key] = setting
        for name, data in self._step.new_commands(self._behind):
            self._writer.command(name, data.encode())

    def _behind(self) -> int:
        positions = self._ledger.offsets(self._route)
        return sum(
            self._log.bounds(partition).end - (positions[partition].committed if partition in positions else 0)
            for partition in self._log.partitions(self._sources)
        )

    def _has_unread(self) -> bool:
        positions = self._ledger.offsets(self._route)
        return any(
            self._log.bounds(partition).end > (positions[partition].committed if partition in positions else 0)
            for partition in self._log.partitions([control_source(self._route)])
        )

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            # Whatever it is: without this thread, what waits would wait for ever.
            if self._reminder.is_due(time.monotonic()):
                events.control_failed(self._route, next(iter(str(error).splitlines()), type(error).__name__))
