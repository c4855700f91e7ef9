"""What an operator can do about a history that a route has found: ``adopt`` it, deliver again in spite of it, or start
at the end of the log."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.destinations.contract import Batch, LoadedTable
from penstock.engine.history.adoption import LogPart, history_reach, lost_replays, plan_adoption
from penstock.engine.history.batch_origin import Origin
from penstock.engine.history.route_history import RowsMissing
from penstock.engine.ledger import Act, AdoptedBatch, Adoption, Operator
from penstock.engine.ledger.table_mappings import RouteBook
from penstock.engine.operate.offset_control import (
    RewindRange,
    block_engine_start,
    passed_copies,
    refuse_if_holding,
    rewind,
    running_engine,
)
from penstock.engine.pipeline import Pipeline
from penstock.engine.route_sources import replay_source
from penstock.engine.spark.spark_checkpoints import checkpoints_of, delivered_up_to, has_state
from penstock.errors import ContradictionError, PenstockError, TransientError
from penstock.log.record_order import LogOrder


@dataclass(frozen=True)
class AdoptionResult:
    """What a route has adopted, per partition: it stood at ``start`` and goes on at ``end``."""

    route: str
    other: str
    batches: int
    stretches: dict[int, tuple[int, int]]
    failed_aside: Path | None = None
    """Where the failed records are that another ledger counted, if there are any; this one does not count them."""
    replayed: str = ""
    """Says that failed records may be at the destination, because it has replayed ones that this log does not have."""


def _refuse_if_waiting(pipeline: Pipeline, route: str) -> None:
    if route in pipeline.config.routes and pipeline.plan(route).destination().capabilities.leaves_waiting:
        raise PenstockError(
            "PEN-ENG-077",
            f"the destination of route '{route}' takes some records later than others, and what was delivered does not"
            " tell which of them wait.",
            f"Deliver everything again: penstock offset rewind {route} --to 0. Or begin at the end of the log: penstock"
            " run --from now",
        )


def _refuse_if_held(pipeline: Pipeline, other: str, route: str) -> None:
    """Refuse to adopt what a route with a holding step has delivered, now or when it had one."""
    keep = (
        "Give the route its old name back: with a step that keeps records back it keeps it."
        if other != route
        else ("Put the newest copy of `data_dir` back, if there is one.")
    )
    fix = (
        f"{keep} Or deliver the whole log again, with which a table that has a `primary_key` stays right: penstock"
        f" offset rewind {route} --to 1970-01-01"
    )
    refuse_if_holding(pipeline, route, "what was delivered does not tell what waits in it", fix)
    left = [path for path in checkpoints_of(pipeline.layout.checkpoints, other) if has_state(path)]
    if left:
        raise PenstockError(
            "PEN-ENG-078",
            f"'{other}' had a step that decides over several batches ({left[0]}): what it has delivered does not tell"
            " what waited in it.",
            fix,
        )


def adopt(pipeline: Pipeline, other: str, route: str, operator: Operator) -> AdoptionResult:
    """Let a route go on after what was delivered under a name: that of a route which left the config, its own under
    another ledger, or its own under a newer copy of this one.

    Writes nothing to the destination. When the route starts, it counts what it has adopted and loads what is
    missing of it.
    """
    _refuse_if_held(pipeline, other, route)
    _refuse_if_waiting(pipeline, route)
    pipeline.sources_of(route)
    pipeline.check_log()
    renamed = other != route and other in pipeline.ledger.routes()
    if renamed and other in pipeline.config.routes:
        raise PenstockError(
            "PEN-ENG-071",
            f"'{other}' is a route of the config: it goes on by itself and cannot be adopted.",
            "Remove it from the config first.",
        )
    pid = running_engine(pipeline)
    if renamed and pid is not None:
        raise PenstockError(
            "PEN-ENG-024",
            f"route '{route}' cannot adopt '{other}' while the engine runs (pid {pid}).",
            "Stop the pipeline, adopt, then start it again.",
        )
    running = pid is not None
    with nullcontext() if running else block_engine_start(pipeline):
        pipeline.ledger.require_idle(route, running)
        if renamed:
            _rename(pipeline, other, route, operator)
        partitions = pipeline.log.partitions(pipeline.sources_of(route))
        parts = pipeline.history().log_parts(pipeline.sources_of(route))
        standing = pipeline.ledger.open_route(route, {p: part.oldest for p, part in parts.items()})
        positions = {p: standing[p].committed for p in partitions}
        starts = {p: fork for p, (fork, _) in pipeline.history().forks(route, pipeline.sources_of(route)).items()}
        starts = {p: fork for p, fork in starts.items() if fork < positions[p]}
        starts = _starts_before_waiting(starts, pipeline.ledger.waiting_ranges(route), positions)
        found, others = _histories(pipeline, other, route, parts)
        adoption = plan_adoption(found, parts, positions, starts, LogOrder(pipeline.log), others)
        if not found and not renamed:
            adoption = _from_holds(pipeline, other, positions, starts, bool(starts))
        if any(load.batch.scope != pipeline.ledger.scope for load in found) or other != route:
            adoption = replace(adoption, waiting={}, newest=0)  # The numbers are of another ledger or route.
        # The destination may have higher numbers of this route than those adopted.
        adoption = replace(adoption, last_number=max(adoption.last_number, _highest_number(pipeline, route)))
        lost = _lost_replays(pipeline, other, route, [*found, *others])
        if lost != 0:
            adoption = replace(adoption, replay_doubts={p: part.end for p, part in parts.items()})
        aside = _set_failed_aside(pipeline, route)
        pipeline.ledger.adopt(route, adoption, operator, running)
        # A name that was not looked at may have come further: it is to be adopted next.
        _accept_others(pipeline, route, {other, route, *(load.batch.route for load in [*found, *others])})
    ends = {p: end for batch in adoption.batches for p, (_, end) in batch.ranges.items()}
    stretches = {p: (position, ends.get(p, starts.get(p, position))) for p, position in positions.items()}
    replayed = "" if lost == 0 else _describe_lost(lost)
    return AdoptionResult(route, other, len(adoption.batches), stretches, aside, replayed)


def _lost_replays(pipeline: Pipeline, other: str, route: str, loads: Sequence[LoadedTable]) -> int | None:
    """How many replayed records this log lacks, over the ledgers that wrote them; ``None`` if one cannot be told."""
    names = {replay_source(other), replay_source(route)}
    replays, log = pipeline.log.partitions(names), pipeline.history().log_parts([*pipeline.sources_of(route), *names])
    total = 0
    for scope in {load.batch.scope for load in loads}:
        known = pipeline.ledger.last_number(route) if scope == pipeline.ledger.scope else 0
        lost = lost_replays([load for load in loads if load.batch.scope == scope], log, replays.keys(), known)
        if lost is None:
            return None
        total += lost
    return total


def _describe_lost(lost: int | None) -> str:
    what = "replayed records, if any," if lost is None else f"{lost} replayed records"
    return (
        f"the destination has {what} that this log does not have: failed records from before may be among them, and"
        " `penstock failed replay` asks you to look first"
    )


def _starts_before_waiting(
    starts: Mapping[int, int], waiting: Sequence[Mapping[int, tuple[int, int]]], positions: Mapping[int, int]
) -> dict[int, int]:
    """Where a route goes back to, so that no part that a table waits for is cut: it would get only the rest of it."""
    found = dict(starts)
    for ranges in sorted(waiting, key=lambda ranges: max(end for _, end in ranges.values()), reverse=True):
        if any(end > found[p] for p, (_, end) in ranges.items() if p in found):
            found |= {p: min(first, found.get(p, first)) for p, (first, _) in ranges.items() if p in positions}
    return found


def accept_history(pipeline: Pipeline, route: str, operator: Operator, act: Act) -> None:
    """Accept that the route goes on in spite of what was delivered before: its new batches get higher numbers."""
    _set_failed_aside(pipeline, route)
    copies = passed_copies(pipeline, route, ())
    pipeline.ledger.accept(route, _highest_number(pipeline, route), operator, act, copies)
    _accept_others(pipeline, route)
    lost = pipeline.history().lost_tables(route, pipeline.plan(route).destination())
    RouteBook(pipeline.ledger, route).forget_tables(lost)


def _set_failed_aside(pipeline: Pipeline, route: str) -> Path | None:
    """Move failed records aside that another ledger, or a newer copy, counts: this ledger would truncate them."""
    return pipeline.failed_store.set_aside(route, pipeline.ledger.failed_extent(route))


def _accept_others(pipeline: Pipeline, route: str, names: Collection[str] | None = None) -> None:
    """Accept the marks that other ledgers have now under these names, or under all; what they add later is checked
    again. Those of this log are the route's own: it goes on from them, or delivers the same records again."""
    loads = pipeline.plan(route).destination().newest_loads()
    batches = [load.batch for load in loads if names is None or load.batch.route in names]
    identities = {part.identity for part in pipeline.history().log_parts().values() if part.identity}
    taken = {route} if names is None else names
    own = {
        (batch.scope, batch.route)
        for batch in batches
        if batch.route in taken and (batch.scope == pipeline.ledger.scope or _is_of(batch, identities))
    }
    numbers = {(batch.scope, batch.route): batch.number for batch in batches}
    pipeline.ledger.accept_others(route, numbers, own, instead=names is None)


def _is_of(batch: Batch, identities: Collection[str]) -> bool:
    """Whether a batch was made of records of a log with these identities."""
    origin = Origin.from_text(batch.origin)
    return origin is not None and any(stretch.identity in identities for stretch in origin.stretches.values())


def find_conflict(pipeline: Pipeline, route: str) -> ContradictionError | None:
    """What keeps the route from starting: it was delivered before, or is gone from the destination."""
    try:
        check_history(pipeline, route)
    except ContradictionError as error:
        return error
    return None


def rewind_anyway(
    pipeline: Pipeline,
    route: str,
    stretches: Sequence[RewindRange],
    operator: Operator,
    conflict: ContradictionError | None,
) -> None:
    """Rewind a route to these ranges, or to where it stands if there are none, and accept what ``find_conflict``
    found. Rows that are missing are not accepted as long as they could come again, from other partitions."""
    rewind(pipeline, stretches, operator)
    if conflict is not None and not (stretches and isinstance(conflict, RowsMissing)):
        accept_history(pipeline, route, operator, Act.REWIND)


def check_history(pipeline: Pipeline, route: str) -> None:
    """Raises ``ContradictionError`` if what was delivered before would keep the route from starting."""
    history, sources = pipeline.history(), pipeline.sources_of(route)
    # A destination that is unavailable is asked when it is back.
    with suppress(TransientError):
        history.check_local_state(route, sources)
        plan = pipeline.plan(route)
        destination = plan.destination()
        history.check_target(route, sources, destination)
        history.check_nothing_missing(route, destination, plan.holding is not None)


def start_at_end(pipeline: Pipeline, operator: Operator) -> list[str]:
    """Let every route without a history in this ledger start at the end of the log. Returns these routes."""
    pipeline.check_log()
    found = [route for route in pipeline.config.routes if not pipeline.ledger.has_history(route)]
    with block_engine_start(pipeline):
        for route in found:
            ends = {p: pipeline.log.bounds(p).end for p in pipeline.log.partitions(pipeline.sources_of(route))}
            pipeline.ledger.open_route(route, ends)
            _set_failed_aside(pipeline, route)
            pipeline.ledger.start_at(route, ends, _highest_number(pipeline, route), operator)
            _accept_others(pipeline, route)
    return found


def _highest_number(pipeline: Pipeline, route: str) -> int:
    return pipeline.history().highest_number(route, pipeline.plan(route).destination())


def _histories(
    pipeline: Pipeline, other: str, route: str, parts: dict[int, LogPart]
) -> tuple[Sequence[LoadedTable], Sequence[LoadedTable]]:
    """The loads that the destination has of this log under that name: first those of the ledger that came furthest in
    this log, which had settled all before that; then those of all others, which may have loaded tables of its pending
    batch that it has not."""
    destination = pipeline.plan(route).destination()
    scopes = {load.batch.scope for load in destination.newest_loads() if load.batch.route == other}
    histories = [(scope, destination.loads(scope, other)) for scope in sorted(scopes)]
    ours = pipeline.ledger.scope
    # How far each has come in what it shares with this log: the sum over all partitions.
    reached = [sum(history_reach(loads, parts).stands_at.values()) for _, loads in histories]
    known = [(reach, scope == ours, scope, loads) for reach, (scope, loads) in zip(reached, histories, strict=True)]
    found = sorted((each for each in known if each[0] or each[1]), key=lambda each: each[:3])
    if not found:
        return [], []
    *others, (_, _, scope, furthest) = found
    newest = max((load.batch.number for load in furthest), default=0)
    # A renamed route went on with its numbers. What its tables waited for is under its former names.
    names = {name for load in furthest if load.batch.number == newest for name in load.waiting_as}
    earlier = [load for name in sorted(names) for load in destination.loads(scope, name)]
    return [*earlier, *furthest], [load for each in others for load in each[3]]


def _from_holds(
    pipeline: Pipeline, other: str, positions: dict[int, int], starts: dict[int, int], moved: bool
) -> Adoption:
    """For destinations that keep no marks: adopts what the route had released in the log and what Spark's checkpoints
    say is done."""
    held = pipeline.log.holds.get().get(other, {})
    left = pipeline.history().other_checkpoints(other)
    known = [held, pipeline.history().delivered_by_spark(other), *map(delivered_up_to, left)]
    ends = {p: max(ends.get(p, 0) for ends in known) for p in positions}
    ends = {p: min(end, pipeline.log.bounds(p).end) for p, end in ends.items()}
    ranges = {p: (positions[p], end) for p, end in ends.items() if positions[p] < end and p not in starts}
    if not ranges and not moved and not left and not pipeline.ledger.last_number(other):
        raise PenstockError(
            "PEN-ENG-072",
            f"neither the ledger nor the disk nor the destination knows of anything that '{other}' has delivered.",
            "See which routes there are: penstock offset list",
        )
    return Adoption([AdoptedBatch(ranges)] if ranges else [], 0, starts)


def _rename(pipeline: Pipeline, old: str, new: str, operator: Operator) -> None:
    """The ledger decides: files exist under both names until it has changed."""
    store, holds = pipeline.failed_store, pipeline.log.holds
    held = holds.get().get(old)
    store.copy(old, new, pipeline.ledger.failed_extent(old))
    if held is not None:
        holds.set(new, held)
    pipeline.ledger.rename_route(old, new, operator)
    holds.remove(old)
    store.remove(old)
