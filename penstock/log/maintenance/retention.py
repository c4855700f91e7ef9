"""Which segments to remove: closed ones that are completely below every hold and past the limits of age or size.

The oldest go first: whenever a crash comes, the rest is one unbroken range up to the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from penstock.durable import sync_directory
from penstock.log.config import Retention
from penstock.log.format.head import sync_head
from penstock.log.format.log_files import index_path
from penstock.log.format.segment import Segment


@dataclass(frozen=True)
class ClosedSegment:
    """What retention needs to know of a segment. Its records have offsets from ``base`` to, not including, ``end``."""

    partition: int
    path: Path
    base: int
    end: int
    bytes: int
    max_timestamp: int


def closed_segment(partition: int, segment: Segment) -> ClosedSegment:
    end = segment.end
    return ClosedSegment(partition, segment.path, segment.base, end.offset, segment.size, end.max_timestamp)


def removable(
    segments: Mapping[int, Iterable[ClosedSegment]],
    floors: Mapping[int, int],
    limits: Retention,
    total_bytes: int,
    now_us: int,
) -> Iterator[ClosedSegment]:
    """The segments to remove, in order. ``segments`` are each partition's closed ones, oldest first."""
    free = {partition: all_below(floors.get(partition, 0), closed) for partition, closed in segments.items()}
    oldest_allowed = None if limits.max_age is None else now_us - int(limits.max_age * 1e6)
    while fronts := [closed[0] for closed in free.values() if closed]:
        oldest = min(fronts, key=lambda segment: segment.max_timestamp)
        too_old = oldest_allowed is not None and oldest.max_timestamp < oldest_allowed
        too_much = limits.max_bytes is not None and total_bytes > limits.max_bytes
        if not (too_old or too_much):
            return
        del free[oldest.partition][0]
        total_bytes -= oldest.bytes
        yield oldest


def remove_segment(segment: ClosedSegment) -> None:
    """Remove the files, durably. Readers that have the segment open can read it to its end."""
    sync_head(segment.path.parent)
    segment.path.unlink(missing_ok=True)
    index_path(segment.path).unlink(missing_ok=True)
    sync_directory(segment.path.parent)


def all_below(floor: int, closed: Iterable[ClosedSegment]) -> list[ClosedSegment]:
    """The segments, from the first on, that are completely below ``floor``."""
    return list(takewhile(lambda segment: segment.end <= floor, closed))
