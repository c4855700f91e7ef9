"""What a route does when the state of its holding step is gone, or not the one that belongs to its ledger."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.engine import events
from penstock.engine.history.left_sources import check_sources_of_held
from penstock.engine.ledger import Ledger, Operator
from penstock.engine.route_plan import RoutePlan
from penstock.log.local_log import LocalLog

_REASON = "the state of its step is gone"


def recover_state(ledger: Ledger, log: LocalLog, plan: RoutePlan, has_state: bool) -> None:
    """Before the route starts: a step whose state is gone, or that has left the config, must not leave behind what
    waits in it. Nor can a batch under way be tried again: it would have other rows. Raises ``ContradictionError`` as
    ``give_up_state`` does."""
    if plan.holding is not None and has_state:
        return
    if ledger.held(plan.name) or (plan.holding is not None and ledger.standing(plan.name).pending is not None):
        give_up_state(ledger, log, plan)
    elif plan.holding is not None and any(position.committed for position in ledger.offsets(plan.name).values()):
        events.state_empty(plan.name, plan.holding.label)


def cannot_catch_up(ledger: Ledger, log: LocalLog, plan: RoutePlan, starts: Mapping[int, int]) -> bool:
    """Whether a state whose next batch begins at ``starts`` is an older one, and the log no longer has all that it
    lacks."""
    positions = ledger.offsets(plan.name)
    return any(
        starts[partition] < min(positions[partition].committed, log.bounds(partition).oldest)
        for partition in starts.keys() & positions.keys() & log.partitions().keys()
    )


def give_up_state(ledger: Ledger, log: LocalLog, plan: RoutePlan) -> None:
    """Go back to what waits, and begin with an empty state there. Raises ``ContradictionError`` if some of it is of a
    source that the route no longer reads."""
    route = plan.name
    check_sources_of_held(log, route, ledger.held(route), log.partitions(plan.sources))
    waiting, pending = ledger.held_items(route), ledger.standing(route).pending
    back_to = ledger.return_to_holds(route, Operator("penstock", _REASON))
    if back_to:
        events.state_lost(route, waiting, back_to)
    if pending is not None:
        events.batch_given_up(route, pending.number)
