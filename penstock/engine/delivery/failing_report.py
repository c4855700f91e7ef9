"""Says which keys a destination fails to deliver, and whether sources are to refuse what comes meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.config.component import IntakeLimits
from penstock.destinations.contract import AnyDestination, FailingRows
from penstock.engine import events
from penstock.engine.ledger import Ledger
from penstock.engine.route_plan import RoutePlan
from penstock.failing_targets import MOST_KEYS, FailingKey, FailingTarget, tell_failing
from penstock.log.local_log import LocalLog
from penstock.redaction import redacted


@dataclass
class FailingReport:
    """Used by one thread."""

    run_dir: Path
    plan: RoutePlan
    ledger: Ledger
    log: LocalLog
    _told: bool = True
    """Whether a file may be there: an engine that was killed may have left one."""

    def update(self, destination: AnyDestination) -> None:
        """Say what is so now. Called about once a second."""
        failing = destination.failing()
        if not failing and not self._told:
            return
        route = self.plan.name
        tell_failing(self.run_dir, route, self._target(failing, destination.config.refuses_intake) if failing else None)
        if bool(failing) != self._told or failing:
            events.keys_failing(route, len(failing))
        self._told = bool(failing)

    def end(self) -> None:
        tell_failing(self.run_dir, self.plan.name, None)

    def _target(self, failing: Mapping[str, FailingRows], limits: IntakeLimits | None) -> FailingTarget:
        by_age = sorted(failing.items(), key=lambda item: -item[1].seconds)
        keys = [FailingKey(name, rows.seconds, rows.failures, redacted(rows.reason)) for name, rows in by_age]
        refuse = "" if limits is None else self._why_to_refuse(keys[0].seconds, limits)
        retry_after = 0.0 if limits is None else limits.retry_after
        return FailingTarget(self.plan.name, self.plan.sources, len(keys), keys[:MOST_KEYS], refuse, retry_after)

    def _why_to_refuse(self, oldest: float, limits: IntakeLimits) -> str:
        if oldest >= limits.age:
            return f"route {self.plan.name} could not deliver for {oldest:.0f} s"
        if limits.bytes is not None and (kept := self._kept_bytes()) >= limits.bytes:
            return f"route {self.plan.name} cannot deliver, and {kept} bytes wait"
        return ""

    def _kept_bytes(self) -> int:
        """About how much the log keeps for the route."""
        positions = self.ledger.offsets(self.plan.name).items()
        return sum(self.log.reader(p).measure(position.hold, self.log.bounds(p).end)[1] for p, position in positions)
