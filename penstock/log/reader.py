"""Reads one partition without a lock, while its writer appends and retention and compaction work on old segments.

Every call sees the partition as its head describes it at that moment and goes no further. A record that is no longer
there (removed, or compacted away) is skipped: the next higher one comes instead.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import pairwise, takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.format.frame import LAST_OFFSET, READ_POOL, FrameFlag, FrameHeader
from penstock.log.format.index import Place
from penstock.log.format.segment import Segment, after
from penstock.log.segment_chain import SegmentChain
from penstock.record import int64_array, int64_values, with_places

BATCH_RECORDS = 16_384
BATCH_BYTES = 8 * 2**20
_MARKS_PER_PIECE = 4


@dataclass(frozen=True)
class Bounds:
    """``oldest`` is the lowest offset that may still be there, ``end`` the one that the next record gets."""

    oldest: int
    end: int


@dataclass(frozen=True)
class StoredSpan:
    """What a partition really holds: the offsets of its first and last record; ``None`` if it has none."""

    first: int | None
    last: int | None


@dataclass(frozen=True)
class PublishedEnd:
    """How far a partition is published: the offset that the next record gets, and the highest stamp of those before."""

    end: int
    stamp: int


class Run(NamedTuple):
    """Records of a partition that were appended together, one after the other, with about their size in memory."""

    stamp: int
    partition: int
    offsets: range | np.ndarray
    bytes: int


class PartitionReader:
    """Safe to use from several threads."""

    def __init__(self, directory: Path, partition: int) -> None:
        self._partition = partition
        self.chain = SegmentChain(directory)

    def bounds(self) -> Bounds:
        view = self.chain.view()
        if view is None:
            return Bounds(0, 0)
        return Bounds(view.bases[0], view.head.next_offset)

    def published_end(self) -> PublishedEnd:
        view = self.chain.view()
        return PublishedEnd(0, 0) if view is None else PublishedEnd(view.head.next_offset, view.head.stamp)

    def stored_span(self) -> StoredSpan:
        """The first and the last record there is: after compaction that is not where the first segment begins."""
        view = self.chain.view()
        first = next((header.base_offset for _, _, header, _ in self._frames(0, self.bounds().end)), None)
        if view is None or first is None:
            return StoredSpan(None, None)
        newest = (self.chain.segment(view, base) for base in reversed(view.bases))
        last = next(filter(None, (segment.last_frame() for segment in newest if segment is not None)), None)
        return StoredSpan(first, None if last is None else last.last_offset)

    def read(self, start: int, end: int | None, max_records: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
        """Records with ``start <= offset < end``, in order, small frames merged into batches of about these sizes."""
        gathered = _Gathered(self._partition)
        stop = self.bounds().end if end is None else end
        for segment, place, header, at in self._frames(start, stop):
            if gathered and not gathered.has_room_for(header, max_records, max_bytes):
                yield gathered.take()
            gathered.add(header, *_within(*segment.open(place, header), at, stop))
        if gathered:
            yield gathered.take()

    def fetch(self, wanted: np.ndarray) -> Iterator[pa.RecordBatch]:
        """The records at these offsets (ascending, each once): only frames that hold one are opened, each once."""
        while len(wanted):
            left = wanted
            for segment, at in self.chain.segments(int(wanted[0])):
                left = left[np.searchsorted(left, at) :]
                if len(left):
                    left = yield from self._fetch(segment, left)
                if len(left) < len(wanted):
                    break
            else:
                return
            # Once more from the next one that is wanted: the segments between are not even opened.
            wanted = left

    def _fetch(self, segment: Segment, wanted: np.ndarray) -> Generator[pa.RecordBatch, None, np.ndarray]:
        """Yield what the segment has of these; return those that lie after it."""
        place = segment.seek(int(wanted[0]))
        while place.position < segment.size:
            _, header = next(segment.walk(place))
            entries, offsets = segment.open(place, header)
            last = int(np.searchsorted(wanted, header.last_offset, "right"))
            rows = _rows_at(offsets, wanted[:last])
            if len(rows) and len(rows) == len(offsets):
                yield with_places(entries, self._partition, int64_array(offsets))
            elif len(rows):
                chosen = pc.take(entries, int64_array(rows), memory_pool=READ_POOL)
                yield with_places(chosen, self._partition, int64_array(offsets[rows]))
            wanted = wanted[last:]
            if len(wanted) == 0:
                return wanted
            place = segment.seek(int(wanted[0]), since=after(place, header))
        return wanted

    def offset_at(self, timestamp: int) -> int:
        """The first offset whose record's timestamp (µs) is not before this one; the end if there is none."""
        end = self.bounds().end
        for segment, _ in self.chain.segments():
            if segment.end.max_timestamp < timestamp:
                continue
            place = segment.seek_time(timestamp)
            _, header = next(segment.walk(place))
            entries, offsets = segment.open(place, header)
            times = int64_values(entries.column(0))
            return int(offsets[int(np.argmax(times >= timestamp))])
        return end

    def end_at(self, stamp: int, start: int | None = None, stop: int | None = None) -> int:
        """The offset before which every record has a stamp of at most this one, and after which none has.

        ``start..stop``: where it is known to lie, which saves a search; one that lies outside comes out as the nearer
        of the two.
        """
        first = self._base_at(stamp) if start is None else start
        for segment, at in self.chain.segments(first):
            if stop is not None and segment.base >= stop:
                return stop
            place = segment.seek_stamp(stamp)
            if place.position < segment.size:
                _, header = next(segment.walk(place))
                found = max(at, _first_above(segment, place, header, stamp))
                return found if stop is None else min(found, stop)
        end = self.bounds().end
        return max(first, end if stop is None else min(end, stop))

    def stamp_at(self, offset: int) -> int:
        """The stamp of the record at ``offset``, or of the next one; after the last one, its own."""
        for segment, place, header, at in self._frames(offset, LAST_OFFSET + 1):
            offsets = _remaining(segment, place, header, at)
            if len(offsets):
                return int(segment.stamps(place, header)[-len(offsets)])
        return self.published_end().stamp

    def runs(self, start: int, stop: int) -> Iterator[Run]:
        """The records with ``start <= offset < stop``, append by append, in order."""
        for segment, place, header, at in self._frames(start, stop):
            offsets = _remaining(segment, place, header, at)
            first, offsets = header.records - len(offsets), offsets[: bisect_left(offsets, stop)]
            if not len(offsets):
                continue
            if header.flags & FrameFlag.STAMPED:
                stamps = segment.stamps(place, header)[first : first + len(offsets)]
                cuts = [0, *(np.flatnonzero(np.diff(stamps)) + 1).tolist(), len(offsets)]
                for low, high in pairwise(cuts):
                    size = header.raw_bytes * (high - low) // header.records
                    yield Run(int(stamps[low]), self._partition, offsets[low:high], size)
            else:
                size = header.raw_bytes * len(offsets) // header.records
                yield Run(header.stamp, self._partition, offsets, size)

    def marked_stamps(self, start: int, stop: int) -> list[int]:
        """Some of the stamps between two offsets, some thousand records apart, in order."""
        return [
            header.stamp
            for segment, first, last in self._stretches(start, stop)
            for place in segment.marks(first, last)
            for _, header in [next(segment.walk(place))]
        ]

    def measure(self, start: int, stop: int) -> tuple[int, int]:
        """How many records there are with ``start <= offset < stop``, and about how many bytes they have in memory."""
        records = raw_bytes = 0
        for segment, first, last in self._stretches(start, stop):
            records += last.records - first.records
            raw_bytes += last.raw_bytes - first.raw_bytes
            records += _count_below(segment, last, stop) - _count_below(segment, first, start)
        return records, raw_bytes

    def advance(self, start: int, max_records: int, max_bytes: int) -> int:
        """The end of a batch from ``start`` on of at most so many records, and about so many bytes of them in memory.

        Bytes are counted in whole frames, records exactly. If there is any record, there is one in the batch.
        """
        end = self.bounds().end
        records, raw_bytes, first = max_records, max_bytes, True
        for segment, at in self.chain.segments(start):
            place = segment.seek(at)
            while place.position < segment.size:
                _, header = next(segment.walk(place))
                offsets = _remaining(segment, place, header, at)
                count = len(offsets)
                size = header.raw_bytes * count // max(1, header.records)
                if count > records or (size > raw_bytes and not first):
                    take = max(records, 1 if first else 0)
                    cut_inside = 0 < take < count and (first or size * take // count <= raw_bytes)
                    return int(offsets[take]) if cut_inside else max(start, place.offset)
                records, raw_bytes, first = records - count, raw_bytes - size, first and count == 0
                place = after(place, header)
                leapt = segment.leap(place, records, raw_bytes)
                records -= leapt.records - place.records
                raw_bytes -= leapt.raw_bytes - place.raw_bytes
                place = leapt
        return max(start, end)

    def split(self, start: int, end: int, pieces: int, min_bytes: int = 0) -> list[tuple[int, int]]:
        """The range cut at frame boundaries into at most so many stretches of about the same number of bytes; fewer if
        they would be smaller than ``min_bytes``."""
        cuts, weights, total = [start], [0], 0
        for segment, first, last in self._stretches(start, end):
            for place in [*_boundaries(segment, first, last, pieces), last]:
                cuts.append(place.offset)
                weights.append(total + place.raw_bytes - first.raw_bytes)
            total = weights[-1]
        if min_bytes:
            pieces = min(pieces, total // min_bytes)
        if total == 0 or pieces <= 1:
            return [(start, end)] if start < end else []
        targets = np.linspace(0, total, pieces + 1)[1:-1]
        middles = (np.array(weights[1:]) + np.array(weights[:-1])) / 2
        chosen = {cuts[int(nearest)] for nearest in np.searchsorted(middles, targets)}
        edges = [start, *sorted(cut for cut in chosen if start < cut < end), end]
        return list(pairwise(edges))

    def _stretches(self, start: int, end: int) -> Iterator[tuple[Segment, Place, Place]]:
        for segment, at in self.chain.segments(start):
            if segment.base >= end:
                return
            yield segment, segment.seek(at), segment.end if segment.end.offset <= end else segment.seek(end)
            if segment.end.offset >= end:
                return

    def _base_at(self, stamp: int) -> int:
        """The first offset of a segment that begins with a record whose stamp is at most this one, if there is one."""
        view = self.chain.view()
        if view is None:
            return 0
        for base in reversed(view.bases):
            segment = self.chain.segment(view, base)
            first = None if segment is None else segment.first_frame()
            if first is not None and first.stamp <= stamp:
                return base
        return view.bases[0]

    def _frames(self, start: int, stop: int) -> Iterator[tuple[Segment, Place, FrameHeader, int]]:
        """Frames with records before ``stop``, and from which offset on each one counts."""
        for segment, at in self.chain.segments(start):
            if segment.base >= stop:
                return
            for place, header in segment.walk(segment.seek(at)):
                if header.base_offset >= stop:
                    return
                if header.records:
                    yield segment, place, header, at
            if segment.end.offset >= stop:
                return


class _Gathered:
    """Frames on their way into one batch."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._empty()

    def __bool__(self) -> bool:
        return self._records > 0

    def has_room_for(self, header: FrameHeader, max_records: int, max_bytes: int) -> bool:
        return self._records + header.records <= max_records and self._bytes + header.raw_bytes <= max_bytes

    def add(self, header: FrameHeader, entries: pa.RecordBatch, offsets: np.ndarray) -> None:
        self._entries.append(entries)
        self._offsets.append(offsets)
        self._records += len(offsets)
        self._bytes += header.raw_bytes

    def take(self) -> pa.RecordBatch:
        if len(self._entries) == 1:
            entries, offsets = self._entries[0], self._offsets[0]
        else:
            entries, offsets = pa.concat_batches(self._entries), np.concatenate(self._offsets)
        self._empty()
        return with_places(entries, self._partition, int64_array(offsets))

    def _empty(self) -> None:
        self._entries: list[pa.RecordBatch] = []
        self._offsets: list[np.ndarray] = []
        self._records = self._bytes = 0


def _within(entries: pa.RecordBatch, offsets: np.ndarray, start: int, end: int) -> tuple[pa.RecordBatch, np.ndarray]:
    first = int(np.searchsorted(offsets, start))
    last = int(np.searchsorted(offsets, end))
    if first == 0 and last == len(offsets):
        return entries, offsets
    return entries.slice(first, last - first), offsets[first:last]


def _remaining(segment: Segment, place: Place, header: FrameHeader, start: int) -> range | np.ndarray:
    """The offsets of a frame's records from ``start`` on; only a scattered one has to be opened for them."""
    if header.records == 0:
        return range(0)
    if not header.flags & FrameFlag.SCATTERED:
        return range(max(start, header.base_offset), header.last_offset + 1)
    offsets = segment.open(place, header)[1]
    return offsets[np.searchsorted(offsets, start) :]


def _count_below(segment: Segment, place: Place, offset: int) -> int:
    """How many records of the frame at a place have offsets below this one."""
    if place.position >= segment.size or place.offset >= offset:
        return 0
    _, header = next(segment.walk(place))
    return 0 if header.base_offset >= offset else header.records - len(_remaining(segment, place, header, offset))


def _first_above(segment: Segment, place: Place, header: FrameHeader, stamp: int) -> int:
    """The offset of the first record of a frame whose stamp is above this one; there is one."""
    if not header.flags & FrameFlag.STAMPED:
        return header.base_offset
    offsets = segment.open(place, header)[1]
    return int(offsets[np.searchsorted(segment.stamps(place, header), stamp, "right")])


def _boundaries(segment: Segment, first: Place, last: Place, pieces: int) -> list[Place]:
    """Enough frame boundaries between two places to cut well: from the index if it has enough, else all there are."""
    marks = segment.marks(first, last)
    if len(marks) >= pieces * _MARKS_PER_PIECE:
        return marks
    return [place for place, _ in takewhile(lambda frame: frame[0].position < last.position, segment.walk(first))][1:]


def _rows_at(offsets: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The rows of a frame, which has these offsets, that are wanted. Both are ascending; a compacted frame may have
    none."""
    rows = np.searchsorted(offsets, wanted)
    inside = rows < len(offsets)
    rows = rows[inside]
    found: np.ndarray = rows[offsets[rows] == wanted[inside]]
    return found
