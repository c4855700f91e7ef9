"""Compaction: keeps only the newest entry of every key, at its offset.

The key of an entry is its namespace and, where it has one, its own key. An entry is dropped only if the partition holds
a newer one of the same key that supersedes it (``supersession``), durable, in any segment; and only from closed
segments that are completely below ``floor``, which nobody reads again.

Segments are rewritten one by one, each put in place by one rename: whenever a crash comes, the log holds everything it
must, and every record once. Then small neighbours are merged. That changes no record, so a reader may find the large
file or the small ones that are not removed yet.

Readers go on meanwhile: what they have open stays as it was, what they open next is compacted.

``preview_compaction`` finds what ``compact`` would drop and changes nothing.
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
from penstock.log.local_log import LocalLog
from penstock.log.maintenance.maintenance_lock import SCRATCH, busy_error, lock_for_maintenance
from penstock.log.maintenance.newest_entries import NewestEntries
from penstock.log.maintenance.retention import ClosedSegment, all_below, closed_segment
from penstock.log.maintenance.rewrite import Rewrite
from penstock.log.maintenance.segment_merge import groups, merge
from penstock.log.maintenance.survivors import write_survivors
from penstock.log.maintenance.work_progress import Meter, Progress, silent
from penstock.log.segment_chain import SegmentChain, View

MARK = "compacted.json"
"""A small file in the partition: the offset up to which it was compacted. Only used to decide when to do it again."""


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
class DroppedRecords:
    """The records of a namespace that compaction would drop."""

    namespace: str
    dropped: int
    without_key: int
    """How many of them have no key of their own: any newer record of the namespace without a key supersedes them."""


@dataclass(frozen=True)
class CompactionPreview:
    """What compaction would do to the closed segments of a partition below ``floor``, which hold so many records."""

    partition: int
    floor: int
    records: int = 0
    going: tuple[DroppedRecords, ...] = ()
    """By namespace, most records first."""

    @property
    def dropped(self) -> int:
        return sum(each.dropped for each in self.going)


def compact(
    log: LocalLog, floors: Mapping[int, int], partitions: Collection[int] | None = None, progress: Progress = silent
) -> list[Compacted]:
    """Compact partitions, by default all. ``floors`` has the lowest hold of all readers of a partition; a partition
    without a floor is left alone.

    Raises ``LogError`` if another process works on a partition, or it is damaged: then it stays as it is.
    """
    chosen = log.partitions() if partitions is None else partitions
    return [_compact(log, partition, floors[partition], progress) for partition in chosen if partition in floors]


def preview_compaction(
    log: LocalLog, floors: Mapping[int, int], partitions: Collection[int] | None = None, progress: Progress = silent
) -> list[CompactionPreview]:
    """What ``compact`` would drop if it ran now. Raises the same errors, and changes nothing."""
    chosen = log.partitions() if partitions is None else partitions
    return [_preview(log, partition, floors[partition], progress) for partition in chosen if partition in floors]


def is_due(log: LocalLog, partition: int, floor: int) -> bool:
    """Whether at least half of the partition may be compacted and never was.

    Compaction reads the whole partition: by this rule each byte is read only a few times, however large the log.
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
    with _lock_closed_segments(log, partition, floor) as work:
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


def _preview(log: LocalLog, partition: int, floor: int, progress: Progress) -> CompactionPreview:
    dropped: Counter[str] = Counter()
    without_key: Counter[str] = Counter()
    records = 0
    with _lock_closed_segments(log, partition, floor) as work:
        if work is None:
            return CompactionPreview(partition, floor)
        for segment, flags, meter in _superseded(log, work, progress):
            records += len(flags)
            for entries in _flagged(Segment(segment.path, segment.base), flags):
                keyless = entries.filter(entries.column("key").is_null())
                dropped.update(_counts(entries))
                without_key.update(_counts(keyless))
            meter.add(segment.bytes)
    going = tuple(DroppedRecords(name, count, without_key[name]) for name, count in dropped.most_common())
    return CompactionPreview(partition, floor, records, going)


@dataclass(frozen=True)
class _Work:
    """A partition's closed segments that may be compacted, at least one, and a folder for temporary files."""

    view: View
    closed: list[ClosedSegment]
    scratch: Path


@contextmanager
def _lock_closed_segments(log: LocalLog, partition: int, floor: int) -> Iterator[_Work | None]:
    """Lock a partition's closed segments below ``floor``; yields ``None`` if there are none."""
    directory = log.partition_dir(partition)
    with lock_for_maintenance(directory) as ours:
        if not ours:
            raise busy_error(log.directory, partition)
        view = SegmentChain(directory).view()
        bases = [] if view is None else view.bases[:-1]
        segments = (closed_segment(partition, Segment(segment_path(directory, base), base)) for base in bases)
        closed = all_below(floor, segments)
        if view is None or not closed:
            yield None
            return
        scratch = directory / SCRATCH
        scratch.mkdir()
        try:
            yield _Work(view, closed, scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _drop_superseded(log: LocalLog, work: _Work, progress: Progress) -> tuple[int, int]:
    """Rewrite every segment that has superseded entries. Returns how many were dropped, and how many kept."""
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
    """The closed segments, each with a flag for every entry: whether it is superseded. The caller adds each finished
    segment to the meter."""
    view, closed = work.view, work.closed
    partition = closed[0].partition
    directory = log.partition_dir(partition)

    def open_segment(base: int) -> Segment:
        # What is published but not durable may be gone after a power cut: it supersedes nothing.
        end = view.head.durable if base == view.head.segment else None
        return Segment(segment_path(directory, base), base, end)

    ends = [open_segment(base).end for base in view.bases]
    counts = [end.records for end in ends[: len(closed)]]
    total = sum(end.position for end in ends) + sum(segment.bytes for segment in closed)
    meter = Meter(partition, total, progress)
    newest = NewestEntries(work.scratch, sum(end.records for end in ends), sum(counts))
    for base in view.bases:
        segment = open_segment(base)
        for place, header in segment.walk(first_place(base)):
            newest.add(segment.open(place, header)[0])
            meter.add(header.frame_bytes)
    superseded = newest.superseded()
    reach("log.compact.found")
    done = 0
    for old, count in zip(closed, counts, strict=True):
        yield old, superseded[done : done + count], meter
        done += count


def _flagged(segment: Segment, flags: npt.NDArray[np.bool_]) -> Iterator[pa.RecordBatch]:
    """The flagged entries of a segment, frame by frame."""
    done = 0
    for place, header in segment.walk(first_place(segment.base)):
        chosen = flags[done : done + header.records]
        done += header.records
        if chosen.any():
            yield segment.open(place, header)[0].filter(pa.array(chosen))


def _counts(entries: pa.RecordBatch) -> dict[str, int]:
    return {each["values"]: each["counts"] for each in entries.column("namespace").value_counts().to_pylist()}


def _rewrite(old: ClosedSegment, dropped: npt.NDArray[np.bool_], config: LogConfig, scratch: Path) -> None:
    segment = Segment(old.path, old.base)
    into = Rewrite(scratch, old.path, old.base, segment.generation + 1)
    write_survivors(segment, dropped, into, config.compression)
    into.publish()


def _merge_small(closed: Iterable[ClosedSegment], config: LogConfig, scratch: Path) -> list[ClosedSegment]:
    """Merge small neighbours; returns the segments that remain."""
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
