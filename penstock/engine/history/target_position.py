"""A target that says how far it is, and is not as far as the ledger: it gets again what it lacks.

That is so after an older copy of it was put back, and if it was killed before it had noted how far it is. A target that
claims to be further is not believed: the ledger knows what was delivered.
"""

from __future__ import annotations

from penstock.destinations.contract import AnyDestination, TargetPosition
from penstock.engine import events
from penstock.engine.ledger import Ledger, Operator
from penstock.engine.route_plan import RoutePlan
from penstock.log.local_log import LocalLog

_NOTHING = TargetPosition(0, 0)
_REASON = "its target needs records from there on"


def return_to_position(ledger: Ledger, log: LocalLog, plan: RoutePlan, destination: AnyDestination) -> None:
    """Before the route starts: go back to what the target needs where it needs what the ledger has let go, or has not
    been told of all that the ledger has committed. Raises ``TransientError`` if the target cannot be asked."""
    route = plan.name
    said, known = destination.position(route), ledger.offsets(route)
    if said is None or ledger.totals(route).items == 0:
        # A route that has delivered nothing yet begins where it was told to.
        return
    oldest = {partition: log.bounds(partition).oldest for partition in log.partitions(plan.sources)}
    found = {p: (said.get(p, _NOTHING), known[p]) for p in known if p in oldest}
    behind = {
        p: min(target.needs, ours.hold)
        for p, (target, ours) in found.items()
        if target.needs < ours.hold or target.told < ours.committed
    }
    gone = {p: (at, min(oldest[p], known[p].hold)) for p, at in behind.items() if at < oldest[p]}
    if gone:
        events.target_lacks_records(route, gone)
    back_to = {p: max(at, oldest[p]) for p, at in behind.items() if oldest[p] < known[p].committed}
    if not back_to:
        return
    pending = ledger.standing(route).pending
    events.target_behind(route, ledger.return_to_holds(route, Operator("penstock", _REASON), back_to))
    if pending is not None:
        events.batch_given_up(route, pending.number)
