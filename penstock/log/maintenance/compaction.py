"""Compaction: of every key only the newest entry stays, at its offset.

The key of an entry is its namespace and, where it has one, its own key. An entry goes only if the partition holds a
newer one of the same key that stands for it (``supersession``), on disk for good, in whichever segment; and only from
segments that are closed and wholly below ``floor``, which nobody asks for again.

Segments are written anew one by one, each put in place by one rename: at any moment of a crash the log holds all that
it must, and every record once. Then small neighbours are put together. That changes no record, so it makes no
difference whether a reader finds the large file, or the small ones that are not removed yet.

Readers go on meanwhile: what they have open stays as it was, what they open next is what is left.

``foresee`` finds what ``compact`` would drop and changes nothing.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.faults import reach
from penstock.log.config import LogConfig
from penstock.log.format.index import first_place
from penstock.log.format.log_files import replace_durably, segment_path
from penstock.log.format.segment import Segment
from penstock.log.local import LocalLog
from penstock.log.maintenance.maintenance_lock import SCRATCH, busy, housekeeping
from penstock.log.maintenance.newest_entries import Newest
from penstock.log.maintenance.retention import ClosedSegment, closed_segment
from penstock.log.maintenance.rewrite import Rewrite
from penstock.log.maintenance.segment_merge import groups, merge
from penstock.log.maintenance.survivors import write_survivors
from penstock.log.maintenance.work_progress import Meter, Progress, silent
from penstock.log.segment_chain import SegmentChain, View

MARK = "compacted.json"
"""A small file in the partition: up to which offset it was compacted. It only helps to decide when to do it again."""


@dataclass(frozen=True)
class Compacted:
    """What compaction did to the closed segments of a partition below ``floor``: nothing, if there are none."""

    partition: int
    floor: int
    dropped: int = 0
    kept: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    segments_before: int = 0
    segments_after: int = 0


@dataclass(frozen=True)
class Going:
    """The records of a namespace that compaction would drop."""

    namespace: str
    dropped: int
    without_key: int
    """How many of them have no key of their own: any newer record of the namespace without one stands for them."""


@dataclass(frozen=True)
class Foreseen:
    """What compaction would do to the closed segments of a partition below ``floor``, which hold so many records."""

    partition: int
    floor: int
    records: int = 0
    going: tuple[Going, ...] = ()
    """By namespace, most records first."""

    @property
    def dropped(self) -> int:
        return sum(each.dropped for each in self.going)


def compact(
    log: LocalLog, floors: Mapping[int, int], partitions: Collection[int] | None = None, progress: Progress = silent
) -> list[Compacted]:
    """Compact partitions, by default all. ``floors`` is the lowest hold of everyone who reads a partition; one without
    is left alone.

    Raises ``LogError`` if a partition is being compacted by another process, or is damaged: then it stays as it is.
    """
    chosen = log.partitions() if partitions is None else partitions
    return [_compact(log, partition, floors[partition], progress) for partition in chosen if partition in floors]


def foresee(
    log: LocalLog, floors: Mapping[int, int], partitions: Collection[int] | None = None, progress: Progress = silent
) -> list[Foreseen]:
    """What ``compact`` would drop if it ran now. Raises as it does, and changes nothing."""
    chosen = log.partitions() if partitions is None else partitions
    return [_foresee(log, partition, floors[partition], progress) for partition in chosen if partition in floors]


def is_due(log: LocalLog, partition: int, floor: int) -> bool:
    """Whether at least half of the partition may be compacted and never was.

    To compact is to read all of it: by this rule each byte is read a few times in its life, however large the log.
    """
    directory = log.partition_dir(partition)
    done, fresh, total = _mark(directory), 0, 0
    for segment, _ in SegmentChain(directory).segments():
        total += segment.size
        if segment.is_closed and segment.base >= done and segment.end.offset <= floor:
            fresh += segment.size
    return fresh > 0 and 2 * fresh >= total


def _compact(log: LocalLog, partition: int, floor: int, progress: Progress) -> Compacted:
    directory = log.partition_dir(partition)
    with _closed_segments(log, partition, floor) as work:
        if work is None:
            return Compacted(partition, floor)
        dropped, kept = _drop_superseded(log, work, progress)
        after = _merge_small(work.closed, log.config, work.scratch)
        replace_durably(directory / MARK, json.dumps({"through": work.closed[-1].end}).encode())
        reach("log.compact.marked")
    return Compacted(
        partition, floor, dropped, kept,
        bytes_before=sum(segment.bytes for segment in work.closed),
        bytes_after=sum(segment.bytes for segment in after),
        segments_before=len(work.closed),
        segments_after=len(after),
    )  # fmt: skip


def _foresee(log: LocalLog, partition: int, floor: int, progress: Progress) -> Foreseen:
    dropped: Counter[str] = Counter()
    without_key: Counter[str] = Counter()
    records = 0
    with _closed_segments(log, partition, floor) as work:
        if work is None:
            return Foreseen(partition, floor)
        for segment, flags, meter in _superseded(log, work, progress):
            records += len(flags)
            for entries in _flagged(Segment(segment.path, segment.base), flags):
                keyless = entries.filter(entries.column("key").is_null())
                dropped.update(_counts(entries))
                without_key.update(_counts(keyless))
            meter.add(segment.bytes)
    going = tuple(Going(name, count, without_key[name]) for name, count in dropped.most_common())
    return Foreseen(partition, floor, records, going)


@dataclass(frozen=True)
class _Work:
    """A partition's closed segments that may be worked on, at least one, and a folder for what is made on the way."""

    view: View
    closed: list[ClosedSegment]
    scratch: Path


@contextmanager
def _closed_segments(log: LocalLog, partition: int, floor: int) -> Iterator[_Work | None]:
    """Have a partition's closed segments below ``floor`` to oneself; ``None`` if there are none."""
    directory = log.partition_dir(partition)
    with housekeeping(directory) as ours:
        if not ours:
            raise busy(log.directory, partition)
        view = SegmentChain(directory).view()
        closed = [] if view is None else _closed_below(directory, partition, view, floor)
        if view is None or not closed:
            yield None
            return
        scratch = directory / SCRATCH
        scratch.mkdir()
        try:
            yield _Work(view, closed, scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _closed_below(directory: Path, partition: int, view: View, floor: int) -> list[ClosedSegment]:
    found: list[ClosedSegment] = []
    for base in view.bases[:-1]:
        segment = closed_segment(partition, Segment(segment_path(directory, base), base))
        if segment.end > floor:
            break
        found.append(segment)
    return found


def _drop_superseded(log: LocalLog, work: _Work, progress: Progress) -> tuple[int, int]:
    """Write every segment anew that has superseded entries. Returns how many those were, and how many others."""
    dropped = records = 0
    for segment, flags, meter in _superseded(log, work, progress):
        if flags.any():
            _rewrite(segment, flags, log.config, work.scratch)
        records += len(flags)
        dropped += int(np.count_nonzero(flags))
        meter.add(segment.bytes)
    return dropped, records - dropped


def _superseded(
    log: LocalLog, work: _Work, progress: Progress
) -> Iterator[tuple[ClosedSegment, npt.NDArray[np.bool_], Meter]]:
    """The closed segments, each with a flag for every entry: whether it is superseded. What is done with a segment is
    told to the meter."""
    view, closed = work.view, work.closed
    partition = closed[0].partition
    directory = log.partition_dir(partition)

    def opened(base: int) -> Segment:
        # What is published but not on disk may be gone after a power cut: it makes no older entry superfluous.
        end = view.head.durable if base == view.head.segment else None
        return Segment(segment_path(directory, base), base, end)

    ends = [opened(base).end for base in view.bases]
    counts = [end.records for end in ends[: len(closed)]]
    total = sum(end.position for end in ends) + sum(segment.bytes for segment in closed)
    meter = Meter(partition, total, progress)
    newest = Newest(work.scratch, sum(end.records for end in ends), sum(counts))
    for base in view.bases:
        _tell(newest, opened(base), meter)
    superseded = newest.superseded()
    reach("log.compact.found")
    done = 0
    for segment, count in zip(closed, counts, strict=True):
        yield segment, superseded[done : done + count], meter
        done += count


def _flagged(segment: Segment, flags: npt.NDArray[np.bool_]) -> Iterator[pa.RecordBatch]:
    """The entries of a segment that have a flag, frame by frame."""
    done = 0
    for place, header in segment.walk(first_place(segment.base)):
        chosen = flags[done : done + header.records]
        done += header.records
        if chosen.any():
            yield segment.open(place, header)[0].filter(pa.array(chosen))


def _counts(entries: pa.RecordBatch) -> dict[str, int]:
    return {each["values"]: each["counts"] for each in entries.column("namespace").value_counts().to_pylist()}


def _tell(newest: Newest, segment: Segment, meter: Meter) -> None:
    for place, header in segment.walk(first_place(segment.base)):
        newest.tell(segment.open(place, header)[0])
        meter.add(header.frame_bytes)


def _rewrite(old: ClosedSegment, dropped: npt.NDArray[np.bool_], config: LogConfig, scratch: Path) -> None:
    segment = Segment(old.path, old.base)
    into = Rewrite(scratch, old.path, old.base, segment.generation + 1)
    write_survivors(segment, dropped, into, config.compression)
    into.publish()


def _merge_small(closed: Iterable[ClosedSegment], config: LogConfig, scratch: Path) -> list[ClosedSegment]:
    """Put small neighbours together; returns the segments there are then."""
    found = {s.base: closed_segment(s.partition, Segment(s.path, s.base)) for s in closed}
    for group in groups(found.values(), config):
        merge(group, scratch)
        first, *others = group
        found[first.base] = closed_segment(first.partition, Segment(first.path, first.base))
        for member in others:
            del found[member.base]
    return list(found.values())


def _mark(directory: Path) -> int:
    try:
        return int(json.loads((directory / MARK).read_bytes())["through"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
