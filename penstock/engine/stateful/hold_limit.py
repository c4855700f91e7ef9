"""How much of the log is kept for what waits in a step, and up to where that must go on so that less is kept.

Known of what waits is only where it begins in each partition. So the measure is everything from there on, as the log
must keep it, however little of it waits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from penstock.log.local_log import LocalLog

Ranges = Mapping[int, tuple[int, int]]
"""By partition, from the lowest offset that waits up to where the route stands."""


def held_bytes(log: LocalLog, held: Ranges) -> int:
    """About how many bytes, as records have them in memory, the log keeps for what waits."""
    return sum(log.reader(p).measure(start, end)[1] for p, (start, end) in held.items() if start < end)


def up_to(log: LocalLog, held: Ranges, stamp: int) -> dict[int, tuple[int, int]]:
    """The part of the ranges at or before a point in the order of the log."""
    found = {p: (start, log.reader(p).end_at(stamp, start, end)) for p, (start, end) in held.items()}
    return {p: (start, end) for p, (start, end) in found.items() if start < end}


def release_point(log: LocalLog, held: Ranges, most: int) -> int:
    """The earliest point in the order of the log, as a stamp, after which these ranges have at most so many bytes. At
    least the oldest record of them is at or before it."""
    first = min(log.reader(p).stamp_at(start) for p, (start, _) in held.items())
    last = max(log.reader(p).stamp_at(end - 1) for p, (_, end) in held.items())

    def is_enough(stamp: int) -> bool:
        gone = up_to(log, held, stamp)
        return held_bytes(log, {p: (gone.get(p, (0, start))[1], end) for p, (start, end) in held.items()}) <= most

    stamps = range(first, last + 1)
    return stamps[bisect_left(stamps, True, key=is_enough)]
