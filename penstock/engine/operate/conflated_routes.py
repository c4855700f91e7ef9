"""What operators ask about routes that keep the newest state of sources: how they are, what waits and why; and to
forget a source."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from penstock.conflation.tally import Tally
from penstock.destinations.contract import GROUP_SEPARATOR
from penstock.destinations.source_states import SourceStates
from penstock.engine.pipeline import Pipeline
from penstock.errors import PenstockError, TransientError

PATIENCE = 5.0
"""Seconds for which a database is asked again that cannot be asked."""
PAUSE = 0.05


@dataclass(frozen=True)
class Pending:
    """Bundles of one source and kind that wait, and that began to wait together."""

    route: str
    source: str
    kind: str
    version: str
    """The newest of them."""
    bundles: int
    reason: str
    since: float
    """When they began to wait, in seconds since 1970."""


@dataclass(frozen=True)
class KindStatus:
    """What is known of one kind of a source."""

    source: str
    kind: str
    tally: Tally
    pending: Sequence[Pending] = ()
    version: str | None = None
    """The newest that the database has; ``None`` if there is none, or if the database cannot be asked."""
    updated_at: datetime | None = None


@dataclass(frozen=True)
class ConflationStatus:
    """Of one route."""

    route: str
    kinds: Sequence[KindStatus]
    active: Mapping[str, bool] = field(default_factory=dict)
    """Sources that the database has, and whether they report."""
    position_lag: int | None = None
    """How many records of the log lie behind the database's own position."""
    unavailable: str | None = None
    """Why the database cannot be asked."""


def conflation_status(pipeline: Pipeline, route: str | None = None) -> list[ConflationStatus]:
    """Of all routes that keep state, or of one."""
    return [_status(pipeline, name) for name in _routes(pipeline, route)]


def pending_bundles(pipeline: Pipeline, route: str | None = None) -> list[Pending]:
    """What waits, the oldest first."""
    found = [each for name in _routes(pipeline, route) for each in _pending(pipeline, name)]
    return sorted(found, key=lambda each: each.since)


@dataclass(frozen=True)
class Forgotten:
    route: str
    rows: int
    """How many rows of the source the database had."""
    waiting: int
    """How many bundles of it waited: they are skipped."""


def forget_source(pipeline: Pipeline, source: str, route: str | None = None) -> Iterator[Forgotten]:
    """Delete all rows and versions of a source, and what waits of it, route by route. Its next bundle makes it known
    again. Raises ``TransientError`` for a database that cannot be asked; what was told before is done."""
    for name in _routes(pipeline, route):
        known = {*pipeline.ledger.tallies(name), *(group.group for group in pipeline.ledger.postponed(name))}
        with _open(pipeline, name) as states:
            # What waits goes first: it must not be written after the rest is gone.
            waiting = pipeline.ledger.forget_waiting(name, [each for each in known if _split(each)[0] == source])
            done = Forgotten(name, states.forget(source), waiting)
        yield done


def _status(pipeline: Pipeline, route: str) -> ConflationStatus:
    tallies = {_split(group): Tally.of(counts) for group, counts in pipeline.ledger.tallies(route).items()}
    pending: dict[tuple[str, str], list[Pending]] = {}
    for each in _pending(pipeline, route):
        pending.setdefault((each.source, each.kind), []).append(each)
    versions: dict[tuple[str, str], tuple[str, datetime]] = {}
    active: dict[str, bool] = {}
    lag: int | None = None
    unavailable = None
    try:
        with _open(pipeline, route) as states:
            for source in states.sources():
                active[source.source] = source.active
                for kind in source.kinds:
                    versions[source.source, kind.kind] = str(kind.version), kind.updated_at
            lag = _position_lag(pipeline, route, states)
    except TransientError as error:
        unavailable = str(error)
    kinds = [
        KindStatus(*key, tallies.get(key, Tally()), pending.get(key, ()), *versions.get(key, (None, None)))
        for key in sorted({*tallies, *pending, *versions})
    ]
    return ConflationStatus(route, kinds, active, lag, unavailable)


def _position_lag(pipeline: Pipeline, route: str, states: SourceStates) -> int | None:
    """``None`` if the database has no position of the route."""
    positions = states.positions(route)
    known = pipeline.log.partitions(pipeline.plan(route).sources)
    ends = {partition: pipeline.log.bounds(partition).end for partition in positions if partition in known}
    return sum(max(0, ends[p] - positions[p]) for p in ends) if ends else None


def _pending(pipeline: Pipeline, route: str) -> Iterator[Pending]:
    for group in pipeline.ledger.postponed(route):
        if group.about:
            source, kind = _split(group.group)
            version = str(json.loads(group.about).get("version", ""))
            yield Pending(route, source, kind, version, group.rows, group.reason, group.since or time.time())


def _routes(pipeline: Pipeline, route: str | None) -> list[str]:
    """The routes that keep state. Raises for a name that is none of them."""
    found = [
        name
        for name in pipeline.config.routes
        if (route is None or name == route) and pipeline.plan(name).destination().capabilities.conflates_waiting
    ]
    if not found:
        which = "no route keeps" if route is None else f"'{route}' is no route that keeps"
        raise PenstockError(
            "PEN-RTE-031",
            f"{which} the state of sources.",
            "Name a route whose destination has `type: state`; `penstock list` describes it.",
        )
    return found


@contextmanager
def _open(pipeline: Pipeline, route: str) -> Iterator[SourceStates]:
    """Raises ``TransientError`` if the database cannot be asked. One in a file has one user at a time: the engine's
    turns are short."""
    deadline = time.monotonic() + PATIENCE
    with ExitStack() as stack:
        while True:
            opened = pipeline.plan(route).destination().open_states()
            assert opened is not None, "a destination that conflates what waits keeps state"
            try:
                states = stack.enter_context(opened)
            except TransientError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(PAUSE)
            else:
                break
        yield states


def _split(group: str) -> tuple[str, str]:
    source, _, kind = group.partition(GROUP_SEPARATOR)
    return source, kind
