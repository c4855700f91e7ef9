"""One segment file, read through a memory map: find a place by offset or time, walk frames, open them.

A segment object is a view of the file up to an end that never moves; a longer view is a new object. It reads nothing
past that end, takes no lock and writes nothing. Whatever it hands out has been checked; a frame that is not whole is
an error that names the file and the byte.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.log.format.frame import (
    HEADER_BYTES,
    BadFrame,
    FrameFlag,
    FrameHeader,
    decode,
    decode_header,
    decode_stamps,
    payload_is_whole,
)
from penstock.log.format.index import Place, first_place, place_at, read_index
from penstock.log.format.log_files import damage_error, index_path

ABOVE_ALL = 2**63 - 1
"""No record has this stamp."""


class Segment:
    def __init__(self, path: Path, base: int, end: int | None = None) -> None:
        """View ``path`` up to byte ``end``, or all of it. Raises ``FileNotFoundError`` if it is gone.

        ``content`` is its bytes, unchecked.
        """
        self.path = path
        self.base = base
        self.is_closed = end is None
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            size, self.inode = status.st_size, status.st_ino
            self.size = size if end is None else end
            if self.size > size:
                raise damage_error(path, size, None, f"it ends here, but was written up to byte {end}")
            self.content = mmap.mmap(fd, self.size, prot=mmap.PROT_READ) if self.size else b""
        finally:
            os.close(fd)
        self._buffer = pa.py_buffer(self.content)

    @cached_property
    def generation(self) -> int:
        """How often it was rewritten; 0 if never, or if its first frame does not say."""
        try:
            return decode_header(self.content[:HEADER_BYTES]).generation
        except BadFrame:
            return 0

    @cached_property
    def _places(self) -> np.ndarray:
        entries = read_index(index_path(self.path), self.base, self.generation)
        return entries[entries["position"] <= self.size]

    @cached_property
    def end(self) -> Place:
        """The place after the last frame: how much the whole segment holds."""
        end = self._last_place_before("position", self.size, inclusive=True)
        for place, header in self.walk(end):
            end = after(place, header)
        return end

    def seek(self, offset: int, since: Place | None = None) -> Place:
        """The first frame that holds ``offset`` or a later one; the end if there is none. ``since`` is a place known to
        lie before it."""
        start = self._last_place_before("offset", offset, inclusive=True)
        if since is not None and since.position > start.position:
            start = since
        for place, header in self.walk(start):
            if header.last_offset >= offset:
                return place
        return self.end

    def seek_time(self, timestamp: int) -> Place:
        """The first frame with a record at or after ``timestamp``; the end if there is none."""
        for place, header in self.walk(self._last_place_before("max_timestamp", timestamp, inclusive=False)):
            if header.max_timestamp >= timestamp:
                return place
        return self.end

    def seek_stamp(self, stamp: int) -> Place:
        """The first frame with a record whose stamp is above ``stamp``; the end if there is none."""
        for place, header in self.walk(self._last_place_stamped(stamp)):
            if header.stamp > stamp:
                return place
        return self.end

    def leap(self, place: Place, records: int, raw_bytes: int) -> Place:
        """The last indexed place after ``place`` with at most so much between them; ``place`` if there is none."""
        entries = self._places
        within = (entries["records"] <= place.records + records) & (entries["raw_bytes"] <= place.raw_bytes + raw_bytes)
        count = int(np.count_nonzero(within))
        if count == 0:
            return place
        found = place_at(entries, count - 1)
        return found if found.position > place.position and self._starts_frame(found) else place

    def marks(self, start: Place, end: Place) -> list[Place]:
        """Indexed places strictly between two."""
        positions = self._places["position"]
        first = int(np.searchsorted(positions, start.position, "right"))
        last = int(np.searchsorted(positions, end.position, "left"))
        return [p for p in (place_at(self._places, i) for i in range(first, last)) if self._starts_frame(p)]

    @property
    def last_mark(self) -> Place:
        """The last indexed place that is followed by a frame."""
        return self._last_place_before("position", self.size, inclusive=False)

    def first_frame(self) -> FrameHeader | None:
        """The first frame that has records; None if there is none."""
        return next((header for _, header in self.walk(first_place(self.base)) if header.records), None)

    def last_frame(self) -> FrameHeader | None:
        """The last frame that has records; None if there is none."""
        starts = [first_place(self.base), *self.marks(first_place(self.base), self.end)]
        for start in reversed(starts):
            found = [header for _, header in self.walk(start) if header.records]
            if found:
                return found[-1]
        return None

    def walk(self, place: Place) -> Iterator[tuple[Place, FrameHeader]]:
        """Frames from a place on: where each starts, and its header."""
        while place.position < self.size:
            header = self._header(place)
            yield place, header
            place = after(place, header)

    def open(self, place: Place, header: FrameHeader) -> tuple[pa.RecordBatch, np.ndarray]:
        """The entries of a frame and their offsets. Verifies its checksum."""
        return decode(header, self.payload(place, header))

    def stamps(self, place: Place, header: FrameHeader) -> np.ndarray:
        """The stamp of each record of a frame. Opens the frame only if they differ."""
        if not header.flags & FrameFlag.STAMPED:
            return np.full(header.records, header.stamp, np.int64)
        return decode_stamps(header, self.payload(place, header))

    def payload(self, place: Place, header: FrameHeader) -> pa.Buffer:
        """The bytes after a frame's header. Verifies their checksum."""
        payload = self.bytes(place.position + HEADER_BYTES, header.payload_bytes)
        if not payload_is_whole(header, np.frombuffer(payload, np.uint8)):
            raise damage_error(self.path, place.position, place.offset, "the frame's checksum is wrong")
        return payload

    def bytes(self, position: int, length: int) -> pa.Buffer:
        """Bytes of the file, unchecked."""
        return self._buffer.slice(position, length)

    def _header(self, place: Place) -> FrameHeader:
        position = place.position
        try:
            header = decode_header(self.content[position : position + HEADER_BYTES])
        except BadFrame as bad:
            raise damage_error(self.path, position, place.offset, str(bad)) from None
        if position + header.frame_bytes > self.size:
            raise damage_error(self.path, position, place.offset, "the frame is cut short")
        if header.base_offset < place.offset:
            raise damage_error(
                self.path, position, place.offset, f"offset {header.base_offset} comes after {place.offset - 1}"
            )
        return header

    def _last_place_before(self, field: str, value: int, *, inclusive: bool) -> Place:
        number = int(np.searchsorted(self._places[field], value, "right" if inclusive else "left")) - 1
        place = place_at(self._places, number) if number >= 0 else first_place(self.base)
        return place if self._starts_frame(place) else first_place(self.base)

    def _last_place_stamped(self, stamp: int) -> Place:
        """An indexed place with nothing above ``stamp`` before it: the index does not say, the frames there do."""
        places = self._places
        number = bisect_right(range(len(places)), stamp, key=lambda n: self._stamp_at(place_at(places, n))) - 1
        found = place_at(places, number) if number >= 0 else first_place(self.base)
        return found if self._stamp_at(found) <= stamp else first_place(self.base)

    def _stamp_at(self, place: Place) -> int:
        """The stamp of the frame at a place; above all others after the last frame, and where none starts."""
        if place.position == self.size or not self._starts_frame(place):
            return ABOVE_ALL
        return decode_header(self.content[place.position : place.position + HEADER_BYTES]).stamp

    def _starts_frame(self, place: Place) -> bool:
        if place.position == self.size:
            return True
        try:
            header = decode_header(self.content[place.position : place.position + HEADER_BYTES])
        except BadFrame:
            return False
        return header.base_offset >= place.offset


def after(place: Place, header: FrameHeader) -> Place:
    """The place after a frame."""
    return Place(
        header.last_offset + 1,
        place.position + header.frame_bytes,
        place.records + header.records,
        place.raw_bytes + header.raw_bytes,
        max(place.max_timestamp, header.max_timestamp),
    )
