"""Cutting a batch into pieces that are delivered one after the other. Pure arithmetic over offset ranges.

A piece covers per partition one stretch, and pieces follow each other without a gap: each begins where the ones before
it end. In a range, records are in order of (partition, offset); that is the order in which a route stops at one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Range = tuple[int, int]
"""Offsets ``[start, end)``."""
Ranges = Mapping[int, Range]
"""Per log partition the offsets of a batch, or of a part of it."""
Place = tuple[int, int]
"""Partition and offset of one record."""


@dataclass(frozen=True)
class Piece:
    """``acknowledged``: an operator has said that these records are done; they are passed over, not delivered.
    ``again``: it was begun before, and is delivered exactly as it was then."""

    ranges: Ranges
    acknowledged: bool = False
    again: bool = False


def left_of(ranges: Ranges, committed: Mapping[int, int]) -> dict[int, Range]:
    """What of the ranges is not behind the route yet. A partition that it has not seen begins at 0."""
    found = {p: (max(start, committed.get(p, 0)), end) for p, (start, end) in sorted(ranges.items())}
    return {p: (start, end) for p, (start, end) in found.items() if start < end}


def behind(ranges: Ranges, taken: Ranges) -> dict[int, Range]:
    """What of the ranges comes after ``taken``, which begins where they begin."""
    return left_of(ranges, {p: end for p, (_, end) in taken.items()})


def begins(ranges: Ranges, first: Ranges) -> bool:
    """Whether ``first`` is a beginning of the ranges, or all of them."""
    return all(p in ranges and ranges[p][0] == start and end <= ranges[p][1] for p, (start, end) in first.items())


def span(ranges: Ranges) -> int:
    """How many offsets there are; at most one record for each."""
    return sum(end - start for start, end in ranges.values())


def halves(ranges: Ranges) -> tuple[dict[int, Range], dict[int, Range]]:
    """The ranges in two, about equally long. Of two offsets or more each half has one."""
    wanted = span(ranges) // 2
    first: dict[int, Range] = {}
    for partition, (start, end) in sorted(ranges.items()):
        taken = min(wanted, end - start)
        if taken:
            first[partition] = (start, start + taken)
        wanted -= taken
    return first, behind(ranges, first)


def around(ranges: Ranges, place: Place) -> list[Piece]:
    """The ranges as what is before a record, the record itself, and what is behind it; without the empty ones."""
    partition, offset = place
    before = {p: stretch for p, stretch in sorted(ranges.items()) if p < partition}
    if ranges[partition][0] < offset:
        before[partition] = (ranges[partition][0], offset)
    record = {partition: (offset, offset + 1)}
    rest = behind(ranges, {**before, **record})
    return [Piece(some) for some in (before, record, rest) if some]


def course(
    ranges: Ranges,
    begun: Ranges | None = None,
    acknowledged: Mapping[int, Iterable[Range]] | None = None,
    stopped_at: Place | None = None,
) -> list[Piece]:
    """The pieces in which ranges are delivered.

    First the batch that was ``begun``, exactly as it was. Then, in partitions where an operator ``acknowledged``
    records or the route had ``stopped_at`` one: those are passed over, and up to the one it stopped at every record is
    a piece of its own. The rest is one piece.
    """
    pieces = [] if begun is None else [Piece(begun, again=True)]
    ranges = ranges if begun is None else behind(ranges, begun)
    rest: dict[int, Range] = {}
    for partition, (start, end) in sorted(ranges.items()):
        careful = stopped_at[1] + 1 if stopped_at is not None and stopped_at[0] == partition else start
        for first, last, done in _stretches((start, end), list((acknowledged or {}).get(partition, ())), careful):
            if last == end and not done and first >= careful:
                rest[partition] = (first, last)
            else:
                pieces.append(Piece({partition: (first, last)}, done))
    return [*pieces, Piece(rest)] if rest else pieces


def joined(stretches: Iterable[Range]) -> list[Range]:
    """The same offsets in as few stretches as possible, in order."""
    found: list[Range] = []
    for start, end in sorted(stretches):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _stretches(whole: Range, acknowledged: Sequence[Range], careful: int) -> list[tuple[int, int, bool]]:
    """A partition's range, cut: acknowledged or not, and one by one below ``careful``."""
    start, end = whole
    done = [(max(start, a), min(end, b)) for a, b in joined(acknowledged) if a < end and start < b]
    found: list[tuple[int, int, bool]] = []
    for first, last in [*done, (end, end)]:
        while start < min(first, careful):
            found.append((start, start + 1, False))
            start += 1
        if start < first:
            found.append((start, first, False))
        if first < last:
            found.append((first, last, True))
        start = last
    return found
