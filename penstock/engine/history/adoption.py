"""What a route adopts from a history that the destination remembers: pure arithmetic over origins.

Batches of a history follow each other, so all before its newest batch was settled: loaded, skipped, failed or
acknowledged, except what tables still waited for; the newest batch names these tables. The newest batch itself may lack
some tables. So may a batch after which the history went back, because a rewind gives up the pending batch; what the
history had delivered beyond that point was to be delivered again. Beyond the fork of its log and ours, a batch holds
other records than our log, and ours are not delivered yet.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.destinations.contract import LoadedTable, Part, TableReceipt
from penstock.engine.delivery.batch_pieces import Order, Place, Range, Ranges, joined, remaining, rest_after
from penstock.engine.delivery.task_report import BatchReport, rows_by_table
from penstock.engine.history.batch_origin import Origin
from penstock.engine.ledger import AdoptedBatch, Adoption
from penstock.errors import PenstockError
from penstock.log.lineage import Lineage
from penstock.outcome import NO_FAILURES, failure_batch


@dataclass(frozen=True)
class LogPart:
    """A partition as this log has it."""

    identity: str
    oldest: int
    end: int
    lineage: Lineage


def plan_adoption(
    loads: Sequence[LoadedTable],
    log: Mapping[int, LogPart],
    positions: Mapping[int, int],
    starts: Mapping[int, int],
    order: Order,
    others: Sequence[LoadedTable] = (),
) -> Adoption:
    """What a route at ``positions`` adopts of ``loads``, one history, oldest first. It goes back to ``starts`` first.
    ``order`` is the log's. ``others``: the loads of further histories, which may have loaded tables of the newest
    batch, or rows that tables waited for."""
    unknown = next((load for load in loads if Origin.from_text(load.batch.origin) is None), None)
    if unknown is not None and all(Origin.from_text(load.batch.origin) is None for load in loads):
        raise PenstockError(
            "PEN-ENG-070",
            f"what the destination has of route '{unknown.batch.route}' was written by an older Penstock, which did not"
            " note the records of its batches.",
            "Find out how far it has come, then acknowledge that and go on after it:"
            f" penstock offset ack {unknown.batch.route} 0..OFFSET --partition P",
        )
    reached = {**positions, **starts}
    newest = max((load.batch.number for load in loads), default=0)
    waiting = {table: number for load in loads if load.batch.number == newest for table, number in load.waiting.items()}
    course = history_reach(loads, log)
    begun = _partial_loads([*loads, *others], log)
    left_in_the_middle: dict[int, set[str]] = {}
    for load in loads:
        if load.upto is not None:
            left_in_the_middle.setdefault(load.batch.number, set()).add(load.table)
    elsewhere = _Coverage(others, log)
    batches: list[AdoptedBatch] = []

    def settled(ranges: Ranges, tables: Mapping[str, str], wanting: Collection[str]) -> Iterator[AdoptedBatch]:
        for some, parts in _split(ranges, begun, order):
            there = {**elsewhere.of(some, wanting), **parts, **tables}
            left = [table for table in wanting if table not in there]
            yield AdoptedBatch(some, there, meant_for=_meant_for(loads, there, some, log), wanting=left)

    for (number, text), tables in _by_batch(loads).items():
        origin = Origin.from_text(text)
        if origin is None:
            continue
        known = shared_ranges(origin, log)
        shared = {p: (start, min(end, course.stands_at[p])) for p, (start, end) in known.items()}
        shared = {p: stretch for p, stretch in shared.items() if stretch[1] > max(stretch[0], reached.get(p, 0))}
        before = {p: (reached.get(p, 0), start) for p, (start, _) in shared.items() if start > reached.get(p, 0)}
        if before:
            # Batches that left no mark: they had no rows, or only rows that still wait.
            batches += settled(before, {}, [table for table, since in waiting.items() if since < number])
        ranges = {p: (max(start, reached.get(p, 0)), end) for p, (start, end) in shared.items()}
        if ranges and number < newest and number not in course.given_up:
            waited = {table for table, since in waiting.items() if since <= number}
            batches += settled(ranges, tables, waited | left_in_the_middle.get(number, set()))
        else:
            for some, parts in _split(ranges, begun, order):
                batches += _uncertain_batches(some, {**parts, **tables}, [*others, *loads], log)
        reached |= {p: end for p, (_, end) in ranges.items()}
    return Adoption(batches, newest, starts, waiting, newest)


def _uncertain_batches(
    ranges: Mapping[int, tuple[int, int]],
    tables: Mapping[str, str],
    loads: Sequence[LoadedTable],
    log: Mapping[int, LogPart],
) -> list[AdoptedBatch]:
    """Batches of which tables may be missing; partitions that lack the same tables are one batch."""
    found: dict[frozenset[str], dict[int, tuple[int, int]]] = {}
    known = _Coverage(loads, log)
    for p, stretch in ranges.items():
        found.setdefault(frozenset(known.of({p: stretch})), {})[p] = stretch
    batches = []
    for some in found.values():
        there = {**known.of(some), **tables}
        batches.append(AdoptedBatch(some, there, settled=False, meant_for=_meant_for(loads, there, some, log)))
    return batches


def _meant_for(
    loads: Sequence[LoadedTable],
    tables: Collection[str],
    ranges: Mapping[int, tuple[int, int]],
    log: Mapping[int, LogPart],
) -> dict[str, Sequence[str]]:
    """For tables that hold rows meant for others: the names of those, from all loads of these ranges."""
    found: dict[str, dict[str, None]] = {}
    for load in loads:
        origin = Origin.from_text(load.batch.origin) if load.meant_for and load.table in tables else None
        shared = {} if origin is None else shared_ranges(origin, log)
        if any(p in shared and shared[p][0] < end and start < shared[p][1] for p, (start, end) in ranges.items()):
            found.setdefault(load.table, {}).update(dict.fromkeys(load.meant_for))
    return {table: list(names) for table, names in found.items()}


def lost_replays(
    loads: Sequence[LoadedTable], log: Mapping[int, LogPart], replays: Collection[int], known: int
) -> int | None:
    """How many replayed records were loaded by batches after number ``known`` that this log does not have; ``None`` if
    it lacks records and the destination has forgotten batches. ``replays`` are the partitions of replayed records. One
    that this log does not have may be such, too."""
    lost: dict[str, list[Range]] = {}
    log_is_behind = False
    for load in loads:
        origin = Origin.from_text(load.batch.origin) if load.batch.number > known else None
        shared = {} if origin is None else shared_ranges(origin, log)
        for p, stretch in ({} if origin is None else origin.stretches).items():
            start = shared[p][1] if p in shared else stretch.start
            if start < stretch.end:
                log_is_behind = True
                if p in replays or p not in log or log[p].identity != stretch.identity:
                    lost.setdefault(stretch.identity, []).append((start, stretch.end))
    if log_is_behind and min(load.batch.number for load in loads) > known + 1:
        return None
    return sum(end - start for stretches in lost.values() for start, end in joined(stretches))


class _Coverage:
    """Which tables have which offsets, according to some loads."""

    def __init__(self, loads: Sequence[LoadedTable], log: Mapping[int, LogPart]) -> None:
        self._loads: dict[str, list[LoadedTable]] = {}
        stretches: dict[tuple[str, int], list[Range]] = {}
        for load in loads:
            if load.upto is not None:
                continue
            origin = Origin.from_text(load.batch.origin)
            for p, stretch in ({} if origin is None else shared_ranges(origin, log)).items():
                stretches.setdefault((load.table, p), []).append(stretch)
            self._loads.setdefault(load.table, []).append(load)
        self._stretches = {place: joined(found) for place, found in stretches.items()}

    def of(self, ranges: Ranges, tables: Collection[str] | None = None) -> dict[str, str]:
        """The tables that have all of these ranges, each with the rows that it refused; only those in ``tables``, if
        given."""
        return {
            table: _refused(its)
            for table, its in self._loads.items()
            if (tables is None or table in tables) and all(self._has(table, p, *r) for p, r in ranges.items())
        }

    def _has(self, table: str, partition: int, start: int, end: int) -> bool:
        return any(a <= start and end <= b for a, b in self._stretches.get((table, partition), ()))


@dataclass(frozen=True)
class _PartialLoad:
    """A table that has its part of a batch only up to a record."""

    table: str
    ranges: Ranges
    upto: Place
    refused: str


def _partial_loads(loads: Sequence[LoadedTable], log: Mapping[int, LogPart]) -> list[_PartialLoad]:
    found = []
    for load in loads:
        origin = Origin.from_text(load.batch.origin) if load.upto is not None else None
        if origin is None or load.upto is None:
            continue
        shared, (partition, offset) = shared_ranges(origin, log), load.upto
        # What comes before a record that this log does not have is unknown.
        if partition in shared and offset < shared[partition][1]:
            found.append(_PartialLoad(load.table, shared, load.upto, _refused([load])))
    return found


def _split(ranges: Ranges, begun: Sequence[_PartialLoad], order: Order) -> list[tuple[Ranges, dict[str, str]]]:
    """Splits the ranges into pieces of which each partly loaded table has all or nothing. Each comes with the tables
    that have it, and the rows that they refused."""
    for number, each in enumerate(begun):
        if not all(p in each.ranges and _within(stretch, each.ranges[p]) for p, stretch in ranges.items()):
            continue
        partition, offset = each.upto
        first = order.before(ranges, each.upto)
        if partition in ranges:
            start, end = ranges[partition]
            first = {**first, partition: (start, min(end, offset + 1))}
        rest, others = rest_after(ranges, first), [*begun[:number], *begun[number + 1 :]]
        loaded = {each.table: each.refused}
        found = [(some, {**there, **loaded}) for some, there in _split(remaining(first, {}), others, order)]
        return [*found, *_split(rest, others, order)]
    return [(ranges, {})] if ranges else []


def _within(inner: Range, outer: Range) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


@dataclass(frozen=True)
class HistoryReach:
    """How far a history came in what it shares with this log, and which batches it may have given up."""

    stands_at: Mapping[int, int]
    given_up: Collection[int]


def history_reach(loads: Sequence[LoadedTable], log: Mapping[int, LogPart]) -> HistoryReach:
    """If a batch begins before the end of an earlier one, the history went back: all the way if a table got the same
    records again, else only to load tables that an earlier adoption had found missing."""
    stands_at: dict[int, int] = {}
    ends: dict[tuple[int, str], int] = {}
    given_up: set[int] = set()
    before = 0
    for (number, text), tables in _by_batch(loads).items():
        origin = Origin.from_text(text)
        shared = {} if origin is None else shared_ranges(origin, log)
        if any(start < stands_at.get(p, 0) for p, (start, _) in shared.items()):
            given_up.add(before)
        for p, (start, end) in shared.items():
            again = any(start < ends.get((p, table), 0) for table in tables)
            # A batch that ends beyond this log came from another copy, and says nothing about this one.
            goes_back = again and origin is not None and end == origin.stretches[p].end
            stands_at[p] = end if goes_back else max(end, stands_at.get(p, 0))
            ends |= {(p, table): stands_at[p] if goes_back else end for table in tables}
        before = number
    return HistoryReach(stands_at, given_up)


def _by_batch(loads: Sequence[LoadedTable]) -> dict[tuple[int, str], dict[str, str]]:
    """For each batch, in order of numbers, the tables that have all of their part, each with its refused rows."""
    found: dict[tuple[int, str], dict[str, str]] = {}
    for load in sorted(loads, key=lambda load: load.batch.number):
        tables = found.setdefault((load.batch.number, load.batch.origin), {})
        if load.upto is None:
            tables[load.table] = _refused([load])
    return found


def _refused(loads: Sequence[LoadedTable]) -> str:
    """The rows that the loads refused, as JSON."""
    rows = []
    for load in loads:
        refused = (load.failures if load.failures is not None else NO_FAILURES).to_pylist()
        rows += [[row["partition"], row["offset"], row["code"], row["message"], row["item"]] for row in refused]
    return json.dumps(rows)


def account_for(adopted: AdoptedBatch, report: BatchReport) -> tuple[list[TableReceipt], list[Part]]:
    """The receipts of the tables that have their rows, and the parts of all others. ``report`` has the same ranges."""
    staged = rows_by_table(report.parts)
    receipts = []
    for table, text in adopted.tables.items():
        rows = sum(staged[name] for name in adopted.staged_as(table))
        if rows:
            refused = refused_in(text, adopted.ranges).slice(0, rows)
            failures, others = refused if refused.num_rows else None, adopted.meant_for.get(table, ())
            receipts.append(TableReceipt(table, rows - refused.num_rows, failures, repeated=True, meant_for=others))
    there = {name for table in adopted.tables for name in adopted.staged_as(table)}
    return receipts, [part for part in report.parts if part.table not in there]


def refused_in(text: str, ranges: Ranges) -> pa.RecordBatch:
    """The rows in these ranges that a table refused."""
    # An older release kept no item.
    return failure_batch(
        [
            (p, o, *(item or (0,)), code, message)
            for p, o, code, message, *item in json.loads(text)
            if p in ranges and ranges[p][0] <= o < ranges[p][1]
        ]
    )


def shared_ranges(origin: Origin, log: Mapping[int, LogPart]) -> dict[int, tuple[int, int]]:
    """The part of a batch that this log has: the same offsets, assigned by the same writers."""
    found = {}
    for partition, stretch in origin.stretches.items():
        ours = log.get(partition)
        if ours is None or ours.identity != stretch.identity:
            continue
        end = min(stretch.end, ours.end)
        start = max(stretch.start, ours.oldest)
        if start < end:
            end = stretch.lineage.agreed(ours.lineage, start, end)
        if stretch.start < end:
            found[partition] = (stretch.start, end)
    return found
