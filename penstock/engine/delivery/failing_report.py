"""Says which keys a destination fails to deliver, and whether sources are to refuse what comes meanwhile.

It is said by a thread of its own: a batch, or a retry of all that waits, may take minutes, and sources are to know
within a second when something begins to fail, and when it ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.config.component import IntakeLimits
from penstock.destinations.contract import AnyDestination, FailingRows
from penstock.engine import events
from penstock.engine.ledger import Ledger
from penstock.engine.route_plan import RoutePlan
from penstock.engine.route_sources import own_sources
from penstock.failing_targets import MOST_KEYS, FailingKey, FailingTarget, tell_failing
from penstock.log.local_log import LocalLog
from penstock.redaction import redacted

LOOK_EVERY = 0.4
"""Seconds. Sources look every half second."""
FORGOTTEN_AFTER = 10.0
"""Seconds after which a key of which nothing waits no longer counts as failing: an operator has given it up, say. By
then what a batch has failed to send waits in the ledger."""


@dataclass
class FailingReport:
    """Used by one thread."""

    run_dir: Path
    plan: RoutePlan
    ledger: Ledger
    log: LocalLog
    forgotten_after: float = FORGOTTEN_AFTER
    _told: bool = True
    """Whether a file may be there: an engine that was killed may have left one."""
    _idle_since: dict[str, float] = field(default_factory=dict)
    """Of keys that fail and of which nothing waits."""

    def keep_telling(self, destination: AnyDestination, ended: threading.Event) -> None:
        """Say what is so until ``ended``."""
        problem = ""
        while not ended.wait(LOOK_EVERY):
            try:
                self.update(destination)
                problem = ""
            except Exception as error:
                # Sources take what was said last for true for a while, and then nothing.
                before, problem = problem, f"{type(error).__name__}: {error}"
                if problem != before:
                    events.failing_not_told(self.plan.name, problem)
        self.end()

    def update(self, destination: AnyDestination) -> None:
        """Say what is so now."""
        failing = destination.failing()
        if given_up := self._given_up(failing):
            destination.forget(given_up)
            failing = {name: rows for name, rows in failing.items() if name not in given_up}
        if not failing and not self._told:
            return
        route = self.plan.name
        tell_failing(self.run_dir, route, self._target(failing, destination.config.refuses_intake) if failing else None)
        if bool(failing) != self._told or failing:
            events.keys_failing(route, len(failing))
        self._told = bool(failing)

    def end(self) -> None:
        tell_failing(self.run_dir, self.plan.name, None)

    def _given_up(self, failing: Mapping[str, FailingRows]) -> set[str]:
        """The keys of which nothing has waited for a while, though they never succeeded."""
        waiting, now = self.ledger.postponed_among(self.plan.name, failing), time.monotonic()
        idle = {name: self._idle_since.get(name, now) for name in failing if name not in waiting}
        found = {name for name, since in idle.items() if now - since >= self.forgotten_after}
        self._idle_since = {name: since for name, since in idle.items() if name not in found}
        return found

    def _target(self, failing: Mapping[str, FailingRows], limits: IntakeLimits | None) -> FailingTarget:
        by_age = sorted(failing.items(), key=lambda item: -item[1].seconds)
        keys = [FailingKey(name, rows.seconds, rows.failures, redacted(rows.reason)) for name, rows in by_age]
        refuse = "" if limits is None else self._why_to_refuse(keys[0].seconds, limits)
        retry_after = 0.0 if limits is None else limits.retry_after
        sources = [name for name in self.plan.sources if name not in own_sources(self.plan.name)]
        return FailingTarget(self.plan.name, sources, len(keys), keys[:MOST_KEYS], refuse, retry_after)

    def _why_to_refuse(self, oldest: float, limits: IntakeLimits) -> str:
        if limits.age is not None and oldest >= limits.age:
            return f"route {self.plan.name} could not deliver for {oldest:.0f} s"
        if limits.bytes is not None and (kept := self._kept_bytes()) >= limits.bytes:
            return f"route {self.plan.name} cannot deliver, and {kept} bytes wait"
        return ""

    def _kept_bytes(self) -> int:
        """About how much the log keeps for the route."""
        positions = self.ledger.offsets(self.plan.name).items()
        return sum(self.log.reader(p).measure(position.hold, self.log.bounds(p).end)[1] for p, position in positions)
