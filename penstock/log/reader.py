"""Reading one partition without a lock, while its writer appends and retention removes old segments.

Every call looks at the partition as its head describes it at that moment and goes no further. A record that is no
longer there (removed, or compacted away) is passed over: the next higher one comes instead.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, takewhile, zip_longest
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.log.files import damaged, segment_bases, segment_path
from penstock.log.frame import FrameFlag, FrameHeader
from penstock.log.head import Head, read_head
from penstock.log.index import Place
from penstock.log.segment import Segment, after
from penstock.record import int64_array, with_places

BATCH_RECORDS = 16_384
BATCH_BYTES = 8 * 2**20
_OPEN_SEGMENTS = 8
_MARKS_PER_PIECE = 4


@dataclass(frozen=True)
class Bounds:
    """``oldest`` is the lowest offset that may still be there, ``end`` the one that the next record gets."""

    oldest: int
    end: int


@dataclass(frozen=True)
class View:
    """The partition at one moment: its segments' first offsets, and its head."""

    bases: list[int]
    head: Head

    def from_offset(self, offset: int) -> list[int]:
        """Bases of the segments that may hold ``offset`` or later ones."""
        return self.bases[max(0, bisect_right(self.bases, offset) - 1) :]


Frame = tuple[Segment, Place, FrameHeader]


class PartitionReader:
    """Safe to use from several threads."""

    def __init__(self, directory: Path, partition: int) -> None:
        self._directory = directory
        self._partition = partition
        self._lock = threading.Lock()
        self._segments: OrderedDict[tuple[int, int | None], Segment] = OrderedDict()

    def view(self) -> View | None:
        """The partition as it is now; None if nothing was ever published in it."""
        head = read_head(self._directory)
        if head is None:
            return None
        bases = segment_bases(self._directory)
        while head.segment not in bases:
            # It may have been closed and removed since the head was read; then the head has moved on.
            earlier, head = head, read_head(self._directory)
            if head is None or head.segment == earlier.segment:
                raise damaged(segment_path(self._directory, earlier.segment), 0, "the file is missing")
            bases = segment_bases(self._directory)
        bases = bases[: bases.index(head.segment) + 1]
        with self._lock:
            # A map keeps a removed file's blocks on the disk: let go of what is no longer listed.
            for key in [key for key in self._segments if key[0] not in bases]:
                del self._segments[key]
        return View(bases, head)

    def segment(self, view: View, base: int) -> Segment | None:
        """A segment of the view, up to where the view goes; None if retention has removed it since."""
        end = view.head.position if base == view.head.segment else None
        key = (base, end)
        with self._lock:
            found = self._segments.get(key)
            if found is not None:
                self._segments.move_to_end(key)
                return found
        path = segment_path(self._directory, base)
        try:
            found = Segment(path, base, end)
        except FileNotFoundError:
            left = segment_bases(self._directory)
            if left and base < left[0]:
                return None
            raise damaged(path, 0, "the file is missing") from None
        with self._lock:
            for stale in [k for k in self._segments if k[0] == base]:
                del self._segments[stale]
            self._segments[key] = found
            while len(self._segments) > _OPEN_SEGMENTS:
                self._segments.popitem(last=False)
        return found

    def bounds(self) -> Bounds:
        view = self.view()
        if view is None:
            return Bounds(0, 0)
        return Bounds(view.bases[0], view.head.next_offset)

    def read(self, start: int, end: int | None, max_records: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
        """Records with ``start <= offset < end``, in order, small frames merged into batches of about these sizes."""
        gathered = _Gathered(self._partition)
        for segment, place, header in self._frames(start, end):
            if gathered and not gathered.has_room_for(header, max_records, max_bytes):
                yield gathered.take()
            gathered.add(header, *_within(*segment.open(place, header), start, end))
        if gathered:
            yield gathered.take()

    def fetch(self, wanted: np.ndarray) -> Iterator[pa.RecordBatch]:
        """The records at these offsets (ascending, each once): only frames that hold one are opened, each once."""
        view = self.view()
        if view is None:
            return
        done = 0
        bases = view.from_offset(int(wanted[0]))
        for base, following in zip_longest(bases, bases[1:]):
            if following is not None and following <= wanted[done]:
                continue
            segment = self.segment(view, base)
            if segment is None:
                continue
            place = segment.seek(int(wanted[done]))
            while place.position < segment.size:
                _, header = next(segment.walk(place))
                entries, offsets = segment.open(place, header)
                last = int(np.searchsorted(wanted, header.last_offset, "right"))
                rows = np.flatnonzero(np.isin(offsets, wanted[done:last], assume_unique=True))
                if len(rows):
                    yield with_places(entries.take(int64_array(rows)), self._partition, int64_array(offsets[rows]))
                done = last
                if done == len(wanted):
                    return
                place = segment.seek(int(wanted[done]), since=after(place, header))

    def offset_at(self, timestamp: int) -> int:
        """The first offset whose record's timestamp (µs) is not before this one; the end if there is none."""
        view = self.view()
        if view is None:
            return 0
        for base in view.bases:
            segment = self.segment(view, base)
            if segment is None or segment.end.max_timestamp < timestamp:
                continue
            place = segment.seek_time(timestamp)
            _, header = next(segment.walk(place))
            entries, offsets = segment.open(place, header)
            times = entries.column(0).to_numpy().view(np.int64)
            return int(offsets[int(np.argmax(times >= timestamp))])
        return view.head.next_offset

    def advance(self, start: int, max_records: int, max_bytes: int) -> int:
        """The end of a batch from ``start`` on of at most so many records, and about so many bytes of them in memory.

        Bytes are counted in whole frames, records exactly. If there is any record, there is one in the batch.
        """
        view = self.view()
        if view is None:
            return start
        records, raw_bytes, first = max_records, max_bytes, True
        for base in view.from_offset(start):
            segment = self.segment(view, base)
            if segment is None:
                continue
            place = segment.seek(start)
            while place.position < segment.size:
                _, header = next(segment.walk(place))
                offsets = _remaining(segment, place, header, start)
                count = len(offsets)
                size = header.raw_bytes * count // header.records
                if count > records or (size > raw_bytes and not first):
                    take = max(records, 1 if first else 0)
                    cut_inside = 0 < take < count and (first or size * take // count <= raw_bytes)
                    return int(offsets[take]) if cut_inside else max(start, place.offset)
                records, raw_bytes, first = records - count, raw_bytes - size, False
                place = after(place, header)
                leapt = segment.leap(place, records, raw_bytes)
                records -= leapt.records - place.records
                raw_bytes -= leapt.raw_bytes - place.raw_bytes
                place = leapt
        return max(start, view.head.next_offset)

    def split(self, start: int, end: int, pieces: int, min_bytes: int) -> list[tuple[int, int]]:
        """The range cut at frame boundaries into at most so many stretches of about the same number of bytes."""
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
        view = self.view()
        if view is None:
            return
        for base in view.from_offset(start):
            if base >= end:
                return
            segment = self.segment(view, base)
            if segment is not None:
                yield segment, segment.seek(start), segment.end if segment.end.offset <= end else segment.seek(end)

    def _frames(self, start: int, end: int | None) -> Iterator[Frame]:
        view = self.view()
        if view is None:
            return
        stop = view.head.next_offset if end is None else end
        expected: int | None = None
        for base in view.from_offset(start):
            if base >= stop:
                return
            segment = self.segment(view, base)
            if segment is None:
                continue
            if expected is not None and expected != base:
                raise damaged(segment_path(self._directory, expected), 0, "the file is missing")
            expected = None
            for place, header in segment.walk(segment.seek(start)):
                if header.base_offset >= stop:
                    return
                yield segment, place, header
                # Where compaction has been, the last records of a segment may be gone, and its end says nothing.
                expected = None if header.flags & FrameFlag.SCATTERED else header.last_offset + 1


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


def _within(
    entries: pa.RecordBatch, offsets: np.ndarray, start: int, end: int | None
) -> tuple[pa.RecordBatch, np.ndarray]:
    first = int(np.searchsorted(offsets, start))
    last = len(offsets) if end is None else int(np.searchsorted(offsets, end))
    if first == 0 and last == len(offsets):
        return entries, offsets
    return entries.slice(first, last - first), offsets[first:last]


def _remaining(segment: Segment, place: Place, header: FrameHeader, start: int) -> range | np.ndarray:
    """The offsets of a frame from ``start`` on; only a scattered one has to be opened for them."""
    if not header.flags & FrameFlag.SCATTERED:
        return range(max(start, header.base_offset), header.last_offset + 1)
    offsets = segment.open(place, header)[1]
    return offsets[np.searchsorted(offsets, start) :]


def _boundaries(segment: Segment, first: Place, last: Place, pieces: int) -> list[Place]:
    """Enough frame boundaries between two places to cut well: from the index if it has enough, else all there are."""
    marks = segment.marks(first, last)
    if len(marks) >= pieces * _MARKS_PER_PIECE:
        return marks
    return [place for place, _ in takewhile(lambda frame: frame[0].position < last.position, segment.walk(first))][1:]
