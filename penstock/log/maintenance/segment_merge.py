"""Merges small neighbouring closed segments into one.

The new file takes the name of the first and holds the records of all, so it reaches up to the end of the last. The
others hold nothing more, and readers skip them: they may be removed now or after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from penstock.durable import sync_directory
from penstock.faults import reach
from penstock.log.config import LogConfig
from penstock.log.format.frame import NO_TIMESTAMP
from penstock.log.format.index import first_place
from penstock.log.format.log_files import index_path
from penstock.log.format.segment import Segment
from penstock.log.maintenance.retention import ClosedSegment
from penstock.log.maintenance.rewrite import Rewrite


def groups(segments: Iterable[ClosedSegment], config: LogConfig) -> list[list[ClosedSegment]]:
    """Which neighbours to merge: several at a time, none of them large, all together no larger than a segment.

    Where retention goes by age, they must also be of similar age: else young records would keep old ones.
    """
    longest = None if config.retention.max_age is None else int(config.segment_age * 1e6)
    found: list[list[ClosedSegment]] = [[]]
    for segment in segments:
        group = found[-1]
        ages = [s.max_timestamp for s in (*group, segment) if s.max_timestamp != NO_TIMESTAMP]
        fits = sum(s.bytes for s in group) + segment.bytes <= config.segment_bytes
        same_age = longest is None or not ages or max(ages) - min(ages) <= longest
        if 2 * segment.bytes > config.segment_bytes:
            found.append([])
        elif fits and same_age:
            group.append(segment)
        else:
            found.append([segment])
    return [group for group in found if len(group) > 1]


def merge(group: list[ClosedSegment], scratch: Path) -> None:
    """Merge neighbours. The caller holds the maintenance lock of the partition."""
    first, *others = group
    into = Rewrite(scratch, first.path, first.base, Segment(first.path, first.base).generation + 1)
    for member in group:
        segment = Segment(member.path, member.base)
        for place, header in segment.walk(first_place(segment.base)):
            if header.records:
                into.copy(header, segment.payload(place, header))
    into.reach_up_to(group[-1].end)
    into.publish()
    for member in others:
        reach("log.compact.remove")
        member.path.unlink()
        reach("log.compact.remove_index")
        index_path(member.path).unlink(missing_ok=True)
    sync_directory(first.path.parent)
    reach("log.compact.merged")
