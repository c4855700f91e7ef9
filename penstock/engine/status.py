"""How a pipeline is doing: log, routes, accounting, lag and rates, as values that can be printed or sent as JSON."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.engine.ledger import Halt, RouteState, Totals
from penstock.engine.pipeline import Pipeline
from penstock.engine.positions import positions

RATE_WINDOW = 30.0
"""Seconds over which the delivery rate is taken."""


@dataclass(frozen=True)
class PartitionStatus:
    partition: int
    source: str
    oldest: int
    end: int
    bytes: int


@dataclass(frozen=True)
class RouteStatus:
    route: str
    state: RouteState | None
    message: str
    totals: Totals
    failed_open: int
    """Of those that failed, how many nobody has replayed or dropped."""
    lag: int
    skipped_by: Mapping[str, int]
    added_by: Mapping[str, int]
    tables: Mapping[str, int]
    items_per_second: float
    last_commit: float | None
    halt: Halt | None = None
    """The record that the route has stopped at, if it has."""

    @property
    def adds_up(self) -> bool:
        return self.totals.adds_up


@dataclass(frozen=True)
class PipelineStatus:
    name: str
    partitions: Sequence[PartitionStatus]
    routes: Sequence[RouteStatus]


def status(pipeline: Pipeline) -> PipelineStatus:
    """Read-only and cheap: safe at any time, also while the pipeline runs."""
    usage = pipeline.log.usage()
    partitions = [
        PartitionStatus(number, owner.source, bounds.oldest, bounds.end, usage[number].bytes if number in usage else 0)
        for number, owner in sorted(pipeline.log.partitions().items())
        for bounds in [pipeline.log.bounds(number)]
    ]
    return PipelineStatus(
        pipeline.config.name, partitions, [route_status(pipeline, name) for name in pipeline.config.routes]
    )


def route_status(pipeline: Pipeline, route: str) -> RouteStatus:
    ledger = pipeline.ledger
    activity = ledger.activity(route)
    recent = ledger.batches(route, last=200)
    now = time.time()
    window = [batch for batch in recent if now - batch.committed_at <= RATE_WINDOW]
    return RouteStatus(
        route=route,
        state=activity.state if activity else None,
        message=activity.message if activity else "",
        totals=ledger.totals(route),
        failed_open=ledger.failed_open(route),
        lag=sum(position.lag for position in positions(pipeline, route)),
        skipped_by=ledger.skips(route),
        added_by=ledger.additions(route),
        tables=ledger.delivered(route),
        items_per_second=sum(batch.items for batch in window) / RATE_WINDOW,
        last_commit=recent[0].committed_at if recent else None,
        halt=ledger.standing(route).halt,
    )
