"""Routes that the ledger knows and the config no longer has.

Such a route keeps its offsets, and the log keeps what it has not read, so that it can come back, or another route can
take over. Only an operator who drops the route gives up what it has not read.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.delivery.route_positions import positions_at
from penstock.engine.operate.offset_control import block_engine_start, running_engine
from penstock.engine.pipeline import Pipeline
from penstock.errors import PenstockError


@dataclass(frozen=True)
class LeftRoute:
    """What a route that left the config still holds."""

    route: str
    lag: int
    """How many offsets in the log it has not read."""
    failed: int
    """How many of its failed records are neither replayed nor dropped."""
    waiting: int
    """How many rows its tables still wait for."""
    held: int
    """How many records wait in its steps, or for its destination to ask for them."""


def left_route(pipeline: Pipeline, route: str) -> LeftRoute:
    if route in pipeline.config.routes:
        raise PenstockError(
            "PEN-ENG-073",
            f"route '{route}' is in the config.",
            "Remove it there first, and restart the pipeline; then it can be dropped.",
        )
    if route not in pipeline.ledger.routes():
        known = ", ".join(pipeline.left_routes()) or "none"
        raise PenstockError(
            "PEN-ENG-074", f"the ledger knows no route '{route}'.", f"Routes that have left the config: {known}."
        )
    account = pipeline.ledger.account(route)
    lag = sum(position.lag for position in positions_at(pipeline, route, account.standing.positions))
    waiting = sum(table.rows for table in account.waiting.values())
    return LeftRoute(route, lag, account.failed_open, waiting, account.totals.waiting - waiting)


def drop(pipeline: Pipeline, route: str) -> None:
    """Remove the route. A running engine does not know it, so it need not stop."""
    left_route(pipeline, route)
    if running_engine(pipeline) is None:
        with block_engine_start(pipeline):
            pipeline.ledger.drop_route(route)
    else:
        pipeline.ledger.drop_route(route)
    pipeline.log.holds.remove(route)
    pipeline.failed_store.remove(route)
