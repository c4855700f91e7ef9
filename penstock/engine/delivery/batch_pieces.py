"""Cuts a batch into pieces that are delivered one after the other. Pure arithmetic over offset ranges.

A piece covers one stretch of each partition. Pieces follow each other without a gap: each begins where the ones before
it end. They keep the order of the log over all partitions: every record of a piece comes before those of the next. A
route stops at records in that order too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

Range = tuple[int, int]
"""Offsets ``[start, end)``."""
Ranges = Mapping[int, Range]
"""Per log partition the offsets of a batch, or of a part of it."""
Place = tuple[int, int]
"""Partition and offset of one record."""


class Order(Protocol):
    """The order of a log's records over its partitions."""

    def before(self, ranges: Ranges, place: Place) -> dict[int, Range]:
        """The part of the ranges that comes before a record."""

    def first(self, ranges: Ranges, records: int) -> dict[int, Range]:
        """The part of the ranges that holds their first ``records`` records."""


@dataclass(frozen=True)
class Piece:
    """``acknowledged``: an operator has declared these records done; they are passed over, not delivered.
    ``again``: the piece was begun before, and is delivered exactly as it was then."""

    ranges: Ranges
    acknowledged: bool = False
    again: bool = False


def remaining(ranges: Ranges, committed: Mapping[int, int]) -> dict[int, Range]:
    """The part of the ranges that is not committed yet. A partition that is not in ``committed`` begins at 0."""
    found = {p: (max(start, committed.get(p, 0)), end) for p, (start, end) in sorted(ranges.items())}
    return {p: (start, end) for p, (start, end) in found.items() if start < end}


def rest_after(ranges: Ranges, taken: Ranges) -> dict[int, Range]:
    """The part of the ranges that comes after ``taken``, which begins where they begin."""
    return remaining(ranges, {p: end for p, (_, end) in taken.items()})


def starts_with(ranges: Ranges, first: Ranges) -> bool:
    """Whether the ranges start with ``first``, or equal it."""
    return all(p in ranges and ranges[p][0] == start and end <= ranges[p][1] for p, (start, end) in first.items())


def offset_count(ranges: Ranges) -> int:
    """How many offsets the ranges have; each holds at most one record."""
    return sum(end - start for start, end in ranges.values())


def halves(ranges: Ranges, records: int, order: Order) -> tuple[dict[int, Range], dict[int, Range]]:
    """Splits ranges that hold ``records`` records in two; the first gets half of the records."""
    first = order.first(ranges, records // 2)
    return first, rest_after(ranges, first)


def split_around(ranges: Ranges, place: Place, order: Order) -> list[Piece]:
    """Splits the ranges into what comes before a record, the record, and what follows it. Leaves out empty pieces."""
    partition, offset = place
    before = order.before(ranges, place)
    record = {partition: (offset, offset + 1)}
    rest = rest_after(ranges, {**before, **record})
    return [Piece(some) for some in (before, record, rest) if some]


def plan_pieces(
    ranges: Ranges,
    order: Order,
    begun: Ranges | None = None,
    acknowledged: Mapping[int, Iterable[Range]] | None = None,
    stopped_at: Place | None = None,
) -> list[Piece]:
    """The pieces in which ranges are delivered.

    The batch that was ``begun`` comes first, exactly as it was. What an operator ``acknowledged`` is passed over. In
    the partition where the route had ``stopped_at`` a record, every record up to that one is a piece of its own. What
    lies between these is delivered when its turn in the order comes.
    """
    pieces = [] if begun is None else [Piece(begun, again=True)]
    ranges = ranges if begun is None else rest_after(ranges, begun)
    waiting = [
        deque(found)
        for partition, stretch in sorted(ranges.items())
        if (found := _lone_pieces(partition, stretch, (acknowledged or {}).get(partition, ()), stopped_at))
    ]
    while waiting:
        turn, before = waiting[0], order.before(ranges, _start(waiting[0][0]))
        for other in waiting[1:]:
            if _lies_in(_start(other[0]), before):
                turn, before = other, order.before(ranges, _start(other[0]))
        piece = turn.popleft()
        pieces += [Piece(before), piece] if before else [piece]
        ranges = rest_after(rest_after(ranges, before), piece.ranges)
        waiting = [each for each in waiting if each]
    return [*pieces, Piece(ranges)] if ranges else pieces


def subtract(stretch: Range, passed_over: Iterable[Range]) -> list[Range]:
    """The stretch without those that are ``passed_over``, in order."""
    start, end = stretch
    found: list[Range] = []
    for first, last in joined(passed_over):
        if start < min(first, end):
            found.append((start, min(first, end)))
        start = max(start, last)
    return [*found, (start, end)] if start < end else found


def joined(stretches: Iterable[Range]) -> list[Range]:
    """The same offsets in as few stretches as possible, in order."""
    found: list[Range] = []
    for start, end in sorted(stretches):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _lone_pieces(partition: int, whole: Range, acknowledged: Iterable[Range], stopped_at: Place | None) -> list[Piece]:
    """The pieces of a range that stand alone: what is acknowledged, and else each record up to ``stopped_at``."""
    start, end = whole
    careful = stopped_at[1] + 1 if stopped_at is not None and stopped_at[0] == partition else start
    done = [(max(start, a), min(end, b)) for a, b in joined(acknowledged) if a < end and start < b]
    found: list[Piece] = []
    for first, last in [*done, (end, end)]:
        found += [Piece({partition: (offset, offset + 1)}) for offset in range(start, min(first, careful))]
        found += [Piece({partition: (first, last)}, acknowledged=True)] if first < last else []
        start = last
    return found


def _start(piece: Piece) -> Place:
    """Where a piece of one partition begins."""
    ((partition, (start, _)),) = piece.ranges.items()
    return partition, start


def _lies_in(place: Place, ranges: Ranges) -> bool:
    partition, offset = place
    return partition in ranges and ranges[partition][0] <= offset < ranges[partition][1]
