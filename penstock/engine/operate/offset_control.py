"""Offset control for operators: ``acknowledge`` records, ``rewind`` a route, ``resume`` it, ``release`` what waits.

Nothing here disturbs a running engine. A route can be rewound only while no engine runs, because retention may be
removing what it would read again. Records can be acknowledged, and a route resumed, also while a running engine has
halted it: the engine notices within a second and goes on by itself. What waits in a step can be released at any time,
by the engine that runs or by the next one. If no engine runs, none can start while the ledger
is changed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime

from penstock.engine.delivery.batch_pieces import joined
from penstock.engine.failed.replay import repeated_copies
from penstock.engine.history.left_sources import check_sources_of_held
from penstock.engine.ledger import Advance, MarkedTable, Operator, Position, RouteState
from penstock.engine.pipeline import Pipeline
from penstock.engine.processes.engine_lock import EngineLock
from penstock.engine.processes.presence import engine_pid
from penstock.engine.route_sources import own_sources, replay_source
from penstock.errors import PenstockError
from penstock.log.logical_clock import UNSTAMPED


@dataclass(frozen=True)
class Acknowledged:
    """What was acknowledged: offsets ``first..last`` of a partition, and how many records they hold."""

    route: str
    partition: int
    first: int
    last: int
    records: int
    committed: int
    """The next offset that the route reads. At most ``first`` if they are ahead of it: then it skips them later."""
    resumes: bool
    """Whether the route was halted there and a running engine resumes it."""
    waited_for: int = 0
    """How many waiting parts of batches had some of them: they are left out when the tables are tried again."""


@dataclass(frozen=True)
class RewindRange:
    """A partition that a route reads again from offset ``start``; it had read up to, not including, ``before``."""

    route: str
    partition: int
    source: str
    start: int
    before: int
    gone: bool
    """Whether the log begins there, so that it may no longer have everything that was asked for."""
    acknowledged: tuple[tuple[int, int], ...] = ()
    """What was acknowledged ahead of the route, as ``[start, end)``: that is void, and it is delivered too."""


def acknowledge(
    pipeline: Pipeline, route: str, first: int, last: int | None, partition: int | None, operator: Operator
) -> Acknowledged:
    """Acknowledge the records ``first..last`` (both included; ``None``: up to the newest): they are not sent, and count
    as skipped under ``acknowledged``. Of records that the route is past, those that a table still waits for."""
    positions = _open_route(pipeline, route)
    halt = pipeline.ledger.standing(route).halt
    asked = halt.partition if partition is None and halt is not None else partition
    # Also of a source that the route no longer reads.
    chosen = _partition(pipeline, route, asked, pipeline.ledger.waiting_partitions(route))
    positions = {**pipeline.ledger.offsets(route), **positions}
    bounds, committed = pipeline.log.bounds(chosen), positions[chosen].committed
    end = bounds.end if last is None else last + 1
    if end > bounds.oldest:
        refuse_if_holding(
            pipeline, route, "its records cannot be acknowledged, because others wait around them",
            "Skip them in a step before it (`where`).",
        )  # fmt: skip
    if end > bounds.end or first >= end:
        held = f"{bounds.oldest}..{bounds.end - 1}" if bounds.end > bounds.oldest else "nothing"
        raise PenstockError(
            "PEN-ENG-014", f"partition {chosen} holds {held}: offset {max(first, end - 1)} is not there yet.",
            f"Give offsets up to {bounds.end - 1}, or `FIRST..` for everything in the log from offset FIRST on."
            if bounds.end
            else "There is nothing to acknowledge in this partition yet.",
        )  # fmt: skip
    waited_for = 0
    if first < committed:
        waited_for = pipeline.ledger.acknowledge_waiting(route, chosen, (first, min(end, committed)), operator)
    if end <= committed and waited_for:
        records = _count(pipeline, chosen, first, end)
        return Acknowledged(route, chosen, first, end - 1, records, committed, resumes=False, waited_for=waited_for)
    if end <= committed:
        raise PenstockError(
            "PEN-ENG-015", f"route '{route}' is past offset {end - 1} of partition {chosen}: it stands at {committed}.",
            f"To read it again: penstock offset rewind {route} --to {first} --partition {chosen}",
        )  # fmt: skip
    stretch = (max(first, committed), end)
    known = pipeline.ledger.standing(route).acknowledged.get(chosen, ())
    reached = next((b for a, b in joined([*known, stretch]) if a <= committed < b), committed)
    advance = Advance(committed, reached, _count(pipeline, chosen, committed, reached)) if reached > committed else None
    running = running_engine(pipeline) is not None
    with nullcontext() if running else block_engine_start(pipeline):
        moved = pipeline.ledger.acknowledge(route, chosen, stretch, operator, advance, running)
    return Acknowledged(
        route,
        chosen,
        stretch[0],
        end - 1,
        _count(pipeline, chosen, *stretch),
        reached if moved else committed,
        resumes=moved and running and halt is not None and halt.partition == chosen and halt.offset < reached,
        waited_for=waited_for,
    )


@dataclass(frozen=True)
class Released:
    """What was released: whatever waits at the stamp ``up_to`` or before it."""

    route: str
    up_to: int
    waiting: int
    """How many items the route's steps kept back. More may be in what the route has not read."""
    unread: int
    """How many offsets before that point it has not read."""
    now: bool
    """Whether a running engine does it; otherwise the next start does."""


def release(pipeline: Pipeline, route: str, operator: Operator) -> Released | None:
    """Let the route's holding step settle, by its own rule, everything that is in the log now. What comes later is not
    touched. ``None`` if nothing waits and nothing is unread: then there is nothing to do."""
    positions = _open_route(pipeline, route)
    if pipeline.plan(route).holding is None:
        raise PenstockError(
            "PEN-ENG-076",
            f"route '{route}' has no step that keeps records back: nothing waits in it.",
            "See what waits, and where: penstock status",
        )
    log, holding = pipeline.log, pipeline.ledger.holding(route)
    # A record that is sent from now on has a higher stamp.
    up_to = max((log.reader(partition).published_end().stamp for partition in log.partitions()), default=UNSTAMPED)
    committed = {p: position.committed for p, position in {**positions, **holding.positions}.items()}
    # Also of a source that the route no longer reads, what waits goes on.
    ends = {p: committed[p] for p in holding.held}
    for partition in log.partitions(pipeline.config.routes[route].from_):
        ends[partition] = max(committed[partition], log.reader(partition).end_at(up_to))
    starts = {p: holding.held.get(p, committed[p]) for p in ends}
    if starts == ends:
        return None
    places = {p: (starts[p], end) for p, end in ends.items() if starts[p] < end}
    pipeline.ledger.request_release(route, up_to, operator, places)
    waiting, unread = pipeline.ledger.totals(route).waiting, sum(end - committed[p] for p, end in ends.items())
    return Released(route, up_to, waiting, unread, running_engine(pipeline) is not None)


def plan_rewind(pipeline: Pipeline, route: str, to: int | datetime, partition: int | None) -> list[RewindRange]:
    """What a route would read again from an offset, or from the first record at or after a time in every partition
    (except its replays). Empty if a rewind would have no effect. Changes nothing.

    Where the last record wins, all partitions go back to one moment of the log's order, that of the oldest record that
    is read again: else that record would overwrite newer ones of other partitions, which are not read again. What waits
    in a step is forgotten with the step's state, so all of it is read again, too.
    """
    positions = _open_route(pipeline, route)
    _require_no_engine(pipeline, route)
    standing = pipeline.ledger.standing(route)
    if isinstance(to, datetime):
        found = _since(pipeline, route, to, partition, positions)
    else:
        found = [_from(pipeline, route, to, _partition(pipeline, route, partition), positions)]
        (only,) = found
        # At its position a route may have a batch under way, a record it halted at, or records to skip.
        waits = standing.pending is not None or standing.halt is not None or only.partition in standing.acknowledged
        if only.start == only.before and not waits:
            return []
    if pipeline.plan(route).last_record_wins:
        found = _align_partitions(pipeline, found, positions)
    found = _back_to_holds(pipeline, route, found, positions)
    return [replace(each, acknowledged=tuple(standing.acknowledged.get(each.partition, ()))) for each in found]


def rewind(pipeline: Pipeline, stretches: Sequence[RewindRange], operator: Operator) -> None:
    """Rewind a route to these ranges, as ``plan_rewind`` returned them.

    The records are delivered under new batch numbers: a destination takes them for new ones, and only a key prevents
    duplicates. Copies of them that were replayed are passed over.
    """
    for route in {each.route for each in stretches}:
        _require_no_engine(pipeline, route)
        targets = {each.partition: each.start for each in stretches if each.route == route}
        with block_engine_start(pipeline):
            copies, has_state = passed_copies(pipeline, route, stretches), pipeline.plan(route).holding is not None
            again = _what_comes_again(pipeline, route, targets)
            pipeline.ledger.rewind(route, targets, operator, copies, has_state, again)


def _what_comes_again(pipeline: Pipeline, route: str, targets: Mapping[int, int]) -> list[MarkedTable]:
    """The parts of batches of which everything that the log has comes again once the route is rewound."""
    positions = {p: position.committed for p, position in pipeline.ledger.offsets(route).items()} | dict(targets)
    oldest = {p: pipeline.log.first_offset(p) for p in pipeline.log.partitions()}
    all_replays = dict.fromkeys(pipeline.log.partitions([replay_source(route)]), 0)
    copies = {p: set(found) for p, found in repeated_copies(route, pipeline.log, {**positions, **all_replays}).items()}

    def comes_again(partition: int, first: int, end: int) -> bool:
        if partition not in oldest or positions.get(partition, end) <= max(first, oldest[partition]):
            return True
        # Of replayed records, what comes as the original.
        return copies.get(partition, set()).issuperset(range(max(first, oldest[partition]), end))

    return [
        part
        for part in pipeline.ledger.marked_tables(route)
        if part.ranges is not None and all(comes_again(p, first, end) for p, (first, end) in part.ranges.items())
    ]


def passed_copies(pipeline: Pipeline, route: str, stretches: Sequence[RewindRange]) -> dict[int, list[tuple[int, int]]]:
    """The replayed records, by partition, that a rewound route passes over: it reads what they are copies of. Where the
    last record of a key wins, they come too: nothing is doubled, and they were the last."""
    plan = pipeline.plan(route)
    if plan.last_record_wins and not plan.mirrors:
        return {}
    positions = {p: position.committed for p, position in pipeline.ledger.offsets(route).items()}
    positions |= {each.partition: each.start for each in stretches}
    found = repeated_copies(route, pipeline.log, positions)
    return {p: joined([(offset, offset + 1) for offset in offsets]) for p, offsets in found.items()}


def resume(pipeline: Pipeline, route: str, operator: Operator) -> bool:
    """Let a halted route try its record again. Returns whether a running engine does so now; otherwise the next start
    does."""
    _open_route(pipeline, route)
    activity = pipeline.ledger.activity(route)
    if activity is None or activity.state is not RouteState.HALTED:
        raise PenstockError(
            "PEN-ENG-022",
            f"route '{route}' is not halted: it is {activity.state if activity else 'new'}.",
            "See: penstock status",
        )
    pipeline.ledger.resume(route, operator)
    return running_engine(pipeline) is not None


def running_engine(pipeline: Pipeline) -> int | None:
    """The pid of a running engine, unless it is this process."""
    pid = engine_pid(pipeline.layout)
    return None if pid == os.getpid() else pid


@contextmanager
def block_engine_start(pipeline: Pipeline) -> Iterator[None]:
    """Keep engines from starting inside the block. Raises ``RouteError`` if one has just started."""
    if engine_pid(pipeline.layout) == os.getpid():
        # This process holds the lock already.
        yield
        return
    lock = EngineLock(pipeline.layout.run)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _open_route(pipeline: Pipeline, route: str) -> dict[int, Position]:
    """Open the route; returns its positions in every partition of its sources, also in those not read yet."""
    partitions = pipeline.log.partitions(pipeline.sources_of(route))
    pipeline.check_log()
    known = pipeline.ledger.open_route(route, {p: pipeline.log.bounds(p).oldest for p in partitions})
    return {p: known[p] for p in partitions}


def _partition(pipeline: Pipeline, route: str, asked: int | None, also: Collection[int] = ()) -> int:
    """The partition to work on: offsets count per partition."""
    own = pipeline.log.partitions(pipeline.sources_of(route))
    if asked is None:
        plain = [p for p, owner in own.items() if owner.source not in own_sources(route)]
        if len(plain) == 1:
            return plain[0]
    elif asked in own or asked in also:
        return asked
    listed = ", ".join(f"{p} ({owner.source})" for p, owner in own.items()) or "none yet"
    what = f"has no partition {asked}" if asked is not None else f"reads {len(own)} partitions, each with own offsets"
    raise PenstockError("PEN-ENG-013", f"route '{route}' {what}.", f"Say which with --partition; it reads: {listed}.")


def refuse_if_holding(pipeline: Pipeline, route: str, why: str, fix: str) -> None:
    """Refuse what cannot be done to a route with a holding step."""
    step = pipeline.plan(route).holding if route in pipeline.config.routes else None
    if step is not None:
        what = f"route '{route}' has the step '{step.label}', which decides over several batches: {why}."
        raise PenstockError("PEN-ENG-075", what, fix)


def _require_no_engine(pipeline: Pipeline, route: str) -> None:
    pid = running_engine(pipeline)
    if pid is not None:
        raise PenstockError(
            "PEN-ENG-016",
            f"route '{route}' cannot be moved back while the engine runs (pid {pid}): retention may be removing what it"
            " would read.",
            "Stop the pipeline, then rewind, then start it again.",
        )


def _from(
    pipeline: Pipeline, route: str, offset: int, partition: int, positions: Mapping[int, Position]
) -> RewindRange:
    oldest, committed = pipeline.log.first_offset(partition), positions[partition].committed
    if offset < oldest and offset != committed:
        raise PenstockError(
            "PEN-ENG-018",
            f"the log no longer has offset {offset} of partition {partition}: it begins at {oldest}.",
            f"Rewind to {oldest} or later; an archive may have the rest.",
        )
    if offset > committed:
        last = min(offset, pipeline.log.bounds(partition).end) - 1
        raise PenstockError(
            "PEN-ENG-019", f"route '{route}' stands at {committed} in partition {partition}, before offset {offset}.",
            f"To pass over records: penstock offset ack {route} {committed}..{last} --partition {partition}"
            if last >= committed
            else "It has read all that is there, and what is to come cannot be passed over.",
        )  # fmt: skip
    source = pipeline.log.partitions()[partition].source
    return RewindRange(route, partition, source, offset, committed, gone=False)


def _since(
    pipeline: Pipeline, route: str, time: datetime, asked: int | None, positions: Mapping[int, Position]
) -> list[RewindRange]:
    found = []
    own = pipeline.log.partitions(pipeline.sources_of(route))
    chosen = [_partition(pipeline, route, asked)] if asked is not None else list(own)
    for partition in chosen:
        if asked is None and own[partition].source in own_sources(route):
            continue
        start, oldest = pipeline.log.offset_at(partition, time), pipeline.log.first_offset(partition)
        committed = positions[partition].committed
        if start < committed:
            gone = oldest > 0 and start <= oldest
            found.append(RewindRange(route, partition, own[partition].source, max(start, oldest), committed, gone))
    return found


def _align_partitions(
    pipeline: Pipeline, found: Sequence[RewindRange], positions: Mapping[int, Position]
) -> list[RewindRange]:
    """The same ranges, with all partitions of the route moved back to the oldest record that is read again."""
    log, asked = pipeline.log, {each.partition: each for each in found}
    stamps = {
        each.partition: log.reader(each.partition).stamp_at(each.start) for each in found if each.start < each.before
    }
    if not stamps:
        return list(found)
    first = min(stamps.values())
    # The order of records without a stamp is not known; records with one are newer than all of them.
    moment = max(first - 1, UNSTAMPED)
    for partition, owner in log.partitions(pipeline.sources_of(found[0].route)).items():
        committed, oldest = positions[partition].committed, pipeline.log.first_offset(partition)
        start = max(log.reader(partition).end_at(moment), oldest)
        known = asked.get(partition)
        if known is not None and stamps.get(partition) != first:
            asked[partition] = replace(known, start=min(known.start, start))
        elif known is not None:
            continue  # What the same append put before it is older, and in the same partition.
        elif start < committed:
            gone = 0 < oldest == start
            asked[partition] = RewindRange(found[0].route, partition, owner.source, start, committed, gone)
    return [asked[partition] for partition in sorted(asked)]


def _back_to_holds(
    pipeline: Pipeline, route: str, found: Sequence[RewindRange], positions: Mapping[int, Position]
) -> list[RewindRange]:
    """The same ranges, none of them behind the oldest record that waits in a step."""
    held = pipeline.ledger.held(route) if found else {}
    check_sources_of_held(pipeline.log, route, held, positions)
    moved = {each.partition: each for each in found}
    for partition, first in held.items():
        each = moved.get(partition)
        if each is None:
            source, committed = pipeline.log.partitions()[partition].source, positions[partition].committed
            moved[partition] = RewindRange(route, partition, source, first, committed, gone=False)
        else:
            moved[partition] = replace(each, start=min(each.start, first))
    return [moved[partition] for partition in sorted(moved)]


def _count(pipeline: Pipeline, partition: int, start: int, end: int) -> int:
    return sum(rows.num_rows for rows in pipeline.log.read(partition, start, end))
