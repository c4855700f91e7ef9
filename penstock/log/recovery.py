"""Recovers the end of a partition after a stop at any moment.

Everything below the durable position that the head names must be whole: if it is not, that is damage and an error.
Above it a write may have stopped anywhere: whole frames are kept (their appends may have been acknowledged), and what
follows the last one is cut and reported. A bad frame with whole frames after it is not a torn write but damage,
wherever it is.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.errors import LogError
from penstock.log.format.frame import HEADER_BYTES, MAGIC, BadFrame, FrameHeader, decode_header, payload_is_whole
from penstock.log.format.head import Head, read_head
from penstock.log.format.index import IndexWriter, Place, first_place, place_at, read_index
from penstock.log.format.log_files import damage_error, index_path, segment_bases, segment_path
from penstock.log.format.segment import Segment, after


@dataclass(frozen=True)
class TornTail:
    """What opening cut off: this many bytes of the segment, from this position on."""

    bytes_cut: int
    segment: Path
    position: int


@dataclass(frozen=True)
class RecoveredEnd:
    """Where the writer continues: the last segment, the place after its last whole frame, and what was cut."""

    base: int
    end: Place
    next_offset: int
    cut: TornTail | None


def recover(partition_dir: Path) -> RecoveredEnd | None:
    """Recover the partition, however its last writer ended; None if nothing was ever written to it."""
    bases = segment_bases(partition_dir)
    head = _last_head(partition_dir)
    if head is not None and head.segment not in bases:
        raise damage_error(segment_path(partition_dir, head.segment), 0, head.segment, "the file is missing")
    if not bases:
        return None
    durable = {base: 0 for base in bases if head is not None and base >= head.segment}
    if head is not None:
        durable[head.segment] = head.durable
    for base in bases[:-1]:
        path = segment_path(partition_dir, base)
        if base in durable:
            _require_whole(path, base, durable[base])
        complete_index(path, base)
    last = bases[-1]
    end, cut = _cut_torn_tail(segment_path(partition_dir, last), last, durable.get(last, 0))
    next_offset = max(end.offset, head.next_offset if head is not None else 0)
    return RecoveredEnd(last, end, next_offset, cut)


def open_index(path: Path, base: int, end: Place) -> tuple[IndexWriter, Place]:
    """Open the segment's index, completed up to ``end``; returns it and the last place in it."""
    segment = Segment(path, base, end.position)
    entries = read_index(index_path(path), base, segment.generation)
    kept = entries[entries["position"] <= end.position]
    writer = IndexWriter(index_path(path), base, segment.generation, kept)
    indexed = place_at(kept, len(kept) - 1) if len(kept) else first_place(base)
    for place, _ in segment.walk(indexed):
        if place.is_far_from(indexed):
            writer.add(place)
            indexed = place
    return writer, indexed


def _last_head(partition_dir: Path) -> Head | None:
    try:
        return read_head(partition_dir)
    except LogError:
        return None


def _require_whole(path: Path, base: int, durable: int) -> None:
    """Check that a segment has no torn tail: it was synced before the next one was started."""
    segment = Segment(path, base)
    for place, header in segment.walk(Segment(path, base, durable).end):
        segment.open(place, header)


def complete_index(path: Path, base: int) -> None:
    """Add the missing index entries of a closed segment, up to its end."""
    # Readers report damage in an old segment; it does not keep new records out of the log. And a segment that
    # compaction or retention removes at this moment needs no index.
    with contextlib.suppress(LogError, FileNotFoundError):
        segment = Segment(path, base)
        entries = read_index(index_path(path), base, segment.generation)
        if len(entries) and int(entries["position"][-1]) == segment.size:
            return
        end = segment.end
        writer, _ = open_index(path, base, end)
        writer.add(end)
        writer.close()


def _cut_torn_tail(path: Path, base: int, durable: int) -> tuple[Place, TornTail | None]:
    place = Segment(path, base, durable).end
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        if size == place.position:
            return place, None
        with mmap.mmap(fd, size, prot=mmap.PROT_READ) as content:
            for header in _whole_frames(content, place):
                place = after(place, header)
            if place.position < size and _holds_whole_frame(content, place):
                raise damage_error(
                    path, place.position, place.offset, "the frame is not whole, but frames after it are"
                )
        if place.position == size:
            return place, None
        os.ftruncate(fd, place.position)
        os.fsync(fd)
        return place, TornTail(size - place.position, path, place.position)
    finally:
        os.close(fd)


def _whole_frames(content: mmap.mmap, place: Place) -> Iterator[FrameHeader]:
    position, offset = place.position, place.offset
    while (header := _whole_frame(content, position)) is not None and header.base_offset >= offset:
        yield header
        position, offset = position + header.frame_bytes, header.last_offset + 1


def _holds_whole_frame(content: mmap.mmap, place: Place) -> bool:
    """Whether a later frame of this log follows a bad one. Frames start at multiples of 8."""
    position = content.find(MAGIC, place.position + 8)
    while position >= 0:
        header = _whole_frame(content, position) if position % 8 == 0 else None
        if header is not None and header.base_offset > place.offset:
            return True
        position = content.find(MAGIC, position + 1)
    return False


def _whole_frame(content: mmap.mmap, position: int) -> FrameHeader | None:
    try:
        header = decode_header(content[position : position + HEADER_BYTES])
    except BadFrame:
        return None
    start = position + HEADER_BYTES
    payload = np.frombuffer(content[start : start + header.payload_bytes], np.uint8)
    return header if payload_is_whole(header, payload) else None
