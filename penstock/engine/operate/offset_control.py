"""What an operator may do to a route's offsets: ``acknowledge`` records, ``rewind`` the route, ``resume`` it.

Nothing here gets in the way of an engine that runs. A route can be moved back only while no engine runs, because
retention may be removing what it would read again. Records can be acknowledged, and a route resumed, also while it is
halted in an engine that runs: it sees that within a second and goes on by itself. Where none runs, none can start while
the ledger is changed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime

from penstock.engine.delivery.batch_pieces import joined
from penstock.engine.failed.replay import replay_source
from penstock.engine.ledger import Advance, Operator, Position, RouteState
from penstock.engine.pipeline import Pipeline
from penstock.engine.processes.engine_lock import EngineLock
from penstock.engine.processes.presence import engine_pid
from penstock.errors import PenstockError
from penstock.log.logical_clock import UNSTAMPED


@dataclass(frozen=True)
class Acknowledged:
    """What was declared done: offsets ``first..last`` of a partition, and how many records they hold."""

    route: str
    partition: int
    first: int
    last: int
    records: int
    committed: int
    """The next offset that the route reads. Below ``first`` if they are ahead of it: then it passes over them later."""
    resumes: bool
    """Whether the route was halted there and an engine that runs goes on with it."""
    waited_for: int = 0
    """How many parts of batches that tables wait for had some of them: they are left out when the tables are tried."""


@dataclass(frozen=True)
class Rewound:
    """A partition that a route reads again from offset ``start``; it had come up to, not including, ``before``."""

    route: str
    partition: int
    source: str
    start: int
    before: int
    gone: bool
    """Whether the log begins there, so that it may no longer have all that was asked for."""
    acknowledged: tuple[tuple[int, int], ...] = ()
    """What was acknowledged ahead of the route, as ``[start, end)``: it is so no more, and delivered too."""


def acknowledge(
    pipeline: Pipeline, route: str, first: int, last: int | None, partition: int | None, operator: Operator
) -> Acknowledged:
    """Declare the records ``first..last`` (both included; ``None``: up to the newest) done without sending them. They
    count as skipped under ``acknowledged``. Of records that the route is past, those that a table still waits for."""
    positions = _opened(pipeline, route)
    halt = pipeline.ledger.standing(route).halt
    asked = halt.partition if partition is None and halt is not None else partition
    # Also of a source that the route no longer reads.
    chosen = _partition(pipeline, route, asked, pipeline.ledger.waited_for(route))
    positions = {**pipeline.ledger.offsets(route), **positions}
    bounds, committed = pipeline.log.bounds(chosen), positions[chosen].committed
    end = bounds.end if last is None else last + 1
    if end > bounds.end or first >= end:
        held = f"{bounds.oldest}..{bounds.end - 1}" if bounds.end > bounds.oldest else "nothing"
        raise PenstockError(
            "PEN-ENG-014", f"partition {chosen} holds {held}: offset {max(first, end - 1)} is not there yet.",
            "Acknowledge what is there.",
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
    with nullcontext() if running else no_engine_starts(pipeline):
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


def stretches_since(pipeline: Pipeline, route: str, to: int | datetime, partition: int | None) -> list[Rewound]:
    """What a route would read again from an offset, or from the first record at or after a time in every partition (but
    for its replays). Empty if that would change nothing. Changes nothing.

    Where the last record wins, all partitions go back to one moment of the log's order, that of the oldest record that
    is read again: else it would be put over newer ones of other partitions, which are not.
    """
    positions = _opened(pipeline, route)
    _refuse_while_it_runs(pipeline, route)
    standing = pipeline.ledger.standing(route)
    if isinstance(to, datetime):
        found = _since(pipeline, route, to, partition, positions)
    else:
        found = [_from(pipeline, route, to, _partition(pipeline, route, partition), positions)]
        (only,) = found
        # Where a route stands it may have a batch under way, a record it halted at, or be about to pass over some.
        waits = standing.pending is not None or standing.halt is not None or only.partition in standing.acknowledged
        if only.start == only.before and not waits:
            return []
    if pipeline.plan(route).last_record_wins:
        found = _together(pipeline, found, positions)
    return [replace(each, acknowledged=tuple(standing.acknowledged.get(each.partition, ()))) for each in found]


def rewind(pipeline: Pipeline, stretches: Sequence[Rewound], operator: Operator) -> None:
    """Let a route read these again, as ``stretches_since`` gave them.

    The records are delivered under new batch numbers: a destination takes them for new ones, and only a key keeps them
    from being there twice.
    """
    for route in {each.route for each in stretches}:
        _refuse_while_it_runs(pipeline, route)
        targets = {each.partition: each.start for each in stretches if each.route == route}
        with no_engine_starts(pipeline):
            pipeline.ledger.rewind(route, targets, operator)


def resume(pipeline: Pipeline, route: str, operator: Operator) -> bool:
    """Let a route that is halted try its record again. Returns whether an engine runs that does so now; otherwise it is
    the first thing at the next start."""
    _opened(pipeline, route)
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
    """The process of an engine that runs. This one is not in its own way."""
    pid = engine_pid(pipeline.layout)
    return None if pid == os.getpid() else pid


@contextmanager
def no_engine_starts(pipeline: Pipeline) -> Iterator[None]:
    """Keep engines from starting for a moment. Raises ``RouteError`` if one has just done so."""
    if engine_pid(pipeline.layout) == os.getpid():
        # This process keeps them away already.
        yield
        return
    lock = EngineLock(pipeline.layout.run)
    lock.take()
    try:
        yield
    finally:
        lock.release()


def _opened(pipeline: Pipeline, route: str) -> dict[int, Position]:
    """Where the route stands in every partition of its sources, also in those that it has not read from yet."""
    partitions = pipeline.log.partitions(pipeline.sources_of(route))
    pipeline.check_log()
    known = pipeline.ledger.open_route(route, {p: pipeline.log.bounds(p).oldest for p in partitions})
    return {p: known[p] for p in partitions}


def _partition(pipeline: Pipeline, route: str, asked: int | None, also: Collection[int] = ()) -> int:
    """The partition that is meant: offsets count per partition."""
    own = pipeline.log.partitions(pipeline.sources_of(route))
    if asked is None:
        plain = [p for p, owner in own.items() if owner.source != replay_source(route)]
        if len(plain) == 1:
            return plain[0]
    elif asked in own or asked in also:
        return asked
    listed = ", ".join(f"{p} ({owner.source})" for p, owner in own.items()) or "none yet"
    what = f"has no partition {asked}" if asked is not None else f"reads {len(own)} partitions, each with own offsets"
    raise PenstockError("PEN-ENG-013", f"route '{route}' {what}.", f"Say which with --partition; it reads: {listed}.")


def _refuse_while_it_runs(pipeline: Pipeline, route: str) -> None:
    pid = running_engine(pipeline)
    if pid is not None:
        raise PenstockError(
            "PEN-ENG-016",
            f"route '{route}' cannot be moved back while the engine runs (pid {pid}): retention may be removing what it"
            " would read.",
            "Stop the pipeline, then rewind, then start it again.",
        )


def _from(pipeline: Pipeline, route: str, offset: int, partition: int, positions: Mapping[int, Position]) -> Rewound:
    oldest, committed = _oldest(pipeline, partition), positions[partition].committed
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
    return Rewound(route, partition, source, offset, committed, gone=False)


def _since(
    pipeline: Pipeline, route: str, time: datetime, asked: int | None, positions: Mapping[int, Position]
) -> list[Rewound]:
    found = []
    own = pipeline.log.partitions(pipeline.sources_of(route))
    chosen = [_partition(pipeline, route, asked)] if asked is not None else list(own)
    for partition in chosen:
        if asked is None and own[partition].source == replay_source(route):
            continue
        start, oldest = pipeline.log.offset_at(partition, time), _oldest(pipeline, partition)
        committed = positions[partition].committed
        if start < committed:
            gone = oldest > 0 and start <= oldest
            found.append(Rewound(route, partition, own[partition].source, max(start, oldest), committed, gone))
    return found


def _together(pipeline: Pipeline, found: Sequence[Rewound], positions: Mapping[int, Position]) -> list[Rewound]:
    """The same, with all partitions of the route at the moment of the oldest record that is read again."""
    log, asked = pipeline.log, {each.partition: each for each in found}
    stamps = {each.partition: log.stamp_at(each.partition, each.start) for each in found if each.start < each.before}
    if not stamps:
        return list(found)
    first = min(stamps.values())
    # Of records without a stamp nobody knows which is older; those that have one are newer than all of them.
    moment = max(first - 1, UNSTAMPED)
    for partition, owner in log.partitions(pipeline.sources_of(found[0].route)).items():
        committed, oldest = positions[partition].committed, _oldest(pipeline, partition)
        start = max(log.end_at(partition, moment), oldest)
        known = asked.get(partition)
        if known is not None and stamps.get(partition) != first:
            asked[partition] = replace(known, start=min(known.start, start))
        elif known is not None:
            continue  # What the same append put before it is older, and in the same partition.
        elif start < committed:
            gone = 0 < oldest == start
            asked[partition] = Rewound(found[0].route, partition, owner.source, start, committed, gone)
    return [asked[partition] for partition in sorted(asked)]


def _oldest(pipeline: Pipeline, partition: int) -> int:
    """The offset of the first record that is there; compaction may have left none where the log begins."""
    first = pipeline.log.holding(partition).first
    return pipeline.log.bounds(partition).oldest if first is None else first


def _count(pipeline: Pipeline, partition: int, start: int, end: int) -> int:
    return sum(rows.num_rows for rows in pipeline.log.read(partition, start, end))
