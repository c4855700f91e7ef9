"""How a pipeline is doing: log, routes, accounting, lag and rates, as values that can be printed or sent as JSON."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.destinations.contract import OF_ALL
from penstock.engine.delivery.route_positions import positions_at
from penstock.engine.ledger import Account, Halt, RouteState, TableCount, Totals, WaitingTable
from penstock.engine.pipeline import Pipeline
from penstock.engine.processes.presence import engine_pid, engine_silence, stalled_routes
from penstock.failing_targets import FailingTarget, failing_targets

LEFT = "not in the config"
"""The state of a route that the ledger knows and the config no longer has. It keeps its offsets until it is dropped."""
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
class UnderWay:
    """A batch that was begun and is not committed."""

    batch: int
    since: float
    records: int
    rows: int
    """How many of its rows are at the target already; no other count includes them."""


@dataclass(frozen=True)
class RouteStatus:
    """A record that the log has acknowledged is *behind* until the route takes it, *under way* in a batch that is not
    committed, and then counted in ``totals``: loaded, skipped, failed or waiting."""

    route: str
    state: str
    """Its current state. If the engine died while it was running, not the last noted state."""
    noted: RouteState | None
    """The last state that an engine noted; ``None`` if it never ran."""
    message: str
    totals: Totals
    failed_open: int
    """How many failed records nobody has replayed or dropped."""
    behind: int
    under_way: UnderWay | None
    skipped_by: Mapping[str, int]
    added_by: Mapping[str, int]
    tables: Mapping[str, TableCount]
    items_per_second: float
    last_commit: float | None
    halt: Halt | None = None
    """The record that the route has stopped at, if it has."""
    waiting: Mapping[str, WaitingTable] = field(default_factory=dict)
    """Tables that were unavailable when their batches were committed; the retry lane tries them again."""
    postponed: int = 0
    """Records that the destination does not take yet."""
    failing: FailingTarget | None = None
    """What its destination does not take at the moment, if an engine runs and says so."""
    counted: Mapping[str, int] = field(default_factory=dict)
    """What its destination counts besides rows, by its own names."""
    held_bytes: int = 0
    """About how much of the log, as records have it in memory, is kept for what waits."""

    @property
    def held_by_steps(self) -> int:
        """How many records its steps keep back."""
        return self.totals.waiting - self.postponed - sum(table.rows for table in self.waiting.values())

    @property
    def lag(self) -> int:
        """How many offsets the log holds that the route has not committed."""
        return self.behind + (self.under_way.records if self.under_way else 0)

    @property
    def to_go(self) -> int:
        """How many acknowledged records are not settled: behind, under way or waiting."""
        return self.lag + self.totals.waiting

    @property
    def adds_up(self) -> bool:
        """Whether the counts add up: items taken, rows of all tables, and rows that wait for a table."""
        rows = sum(count.rows for count in self.tables.values())
        waiting = sum(table.rows for table in self.waiting.values())
        return self.totals.adds_up and rows == self.totals.loaded and waiting + self.postponed <= self.totals.waiting


@dataclass(frozen=True)
class PipelineStatus:
    name: str
    engine_pid: int | None
    partitions: Sequence[PartitionStatus]
    routes: Sequence[RouteStatus]
    engine_silent: float | None = None
    """Seconds without a heartbeat of an engine that should run."""
    still: Mapping[str, float] = field(default_factory=dict)
    """Per route whose tasks make no progress, for how many seconds."""


def status(pipeline: Pipeline) -> PipelineStatus:
    """Read-only and cheap: safe at any time, also while the pipeline runs."""
    usage = pipeline.log.usage()
    partitions = [
        PartitionStatus(number, owner.source, bounds.oldest, bounds.end, usage[number].bytes if number in usage else 0)
        for number, owner in sorted(pipeline.log.partitions().items())
        for bounds in [pipeline.log.bounds(number)]
    ]
    pid = engine_pid(pipeline.layout)
    routes = [route_status(pipeline, name, pid is not None) for name in pipeline.config.routes]
    routes += [replace(route_status(pipeline, name), state=LEFT) for name in pipeline.left_routes()]
    silent, still = engine_silence(pipeline.layout, pid), stalled_routes(pipeline.layout, pid)
    return PipelineStatus(pipeline.config.name, pid, partitions, routes, silent, still)


def route_status(pipeline: Pipeline, route: str, engine_runs: bool = True) -> RouteStatus:
    # The ledger first, then the log's ends: what arrives in between is behind, and nothing is counted twice.
    account = pipeline.ledger.account(route)
    places = positions_at(pipeline, route, account.standing.positions)
    lag = sum(place.lag for place in places)
    under_way = _under_way(account)
    recent = pipeline.ledger.batches(route, last=200)
    now = time.time()
    window = [batch for batch in recent if 0 <= now - batch.committed_at <= RATE_WINDOW]
    noted = account.activity.state if account.activity else None
    return RouteStatus(
        route=route,
        state=shown_state(noted, engine_runs),
        noted=noted,
        message=account.activity.message if account.activity else "",
        totals=account.totals,
        failed_open=account.failed_open,
        behind=max(0, lag - (under_way.records if under_way else 0)),
        under_way=under_way,
        skipped_by=account.skipped_by,
        added_by=account.added_by,
        tables=account.tables,
        items_per_second=sum(batch.items for batch in window) / RATE_WINDOW,
        last_commit=recent[0].committed_at if recent else None,
        halt=account.standing.halt,
        waiting=account.waiting,
        postponed=account.postponed,
        failing=next((each for each in failing_targets(pipeline.layout.run) if each.route == route), None),
        counted=pipeline.ledger.tally_of(route, OF_ALL),
        held_bytes=sum(place.held_bytes for place in places),
    )


def shown_state(noted: RouteState | None, engine_runs: bool) -> str:
    """The state to show: a killed engine could not note that it stopped."""
    if noted is None:
        return "new"
    stays = (RouteState.CRASHED, RouteState.HALTED)
    return str(noted if engine_runs or noted in stays else RouteState.STOPPED)


def _under_way(account: Account) -> UnderWay | None:
    pending = account.standing.pending
    if pending is None:
        return None
    records = sum(end - start for start, end in pending.ranges.values())
    rows = sum(count.under_way for count in account.tables.values())
    return UnderWay(pending.number, account.began_at or 0.0, records, rows)
