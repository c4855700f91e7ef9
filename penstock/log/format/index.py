"""The sparse index beside a segment: places from which a reader can start without a scan.

A place is a frame boundary and what is before it in the segment: how many records, how many bytes of them, and the
newest timestamp. So one entry serves searches by offset and by time, and tells how much a range holds. The file is
optional: every entry carries its checksum, entries count up to the first bad one, and what is missing is found by
walking frame headers. It is never synced and only trusted for where to start. It names the generation of its segment:
when compaction replaces the segment, the old index is no longer read.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from typing import NamedTuple

import google_crc32c
import numpy as np

from penstock.log.format.frame import NO_TIMESTAMP

EVERY_BYTES = 2**20
EVERY_RECORDS = 4096


class Place(NamedTuple):
    """A frame boundary. Records before it have offsets below ``offset``, later ones have not."""

    offset: int
    position: int
    records: int
    raw_bytes: int
    max_timestamp: int

    def is_far_from(self, other: Place) -> bool:
        return self.position - other.position >= EVERY_BYTES or self.records - other.records >= EVERY_RECORDS


def first_place(base: int) -> Place:
    return Place(base, 0, 0, 0, NO_TIMESTAMP)


_ENTRY = np.dtype(
    [
        ("offset", "<i8"),
        ("position", "<i8"),
        ("records", "<i8"),
        ("raw_bytes", "<i8"),
        ("max_timestamp", "<i8"),
        ("checksum", "<u8"),
    ]
)
_PLACE = struct.Struct("<qqqqq")
_CHECKSUM = struct.Struct("<Q")
_HEADER = struct.Struct("<8sqqI12x")
_MAGIC = b"PNSIDX01"
assert _PLACE.size + _CHECKSUM.size == _HEADER.size + _CHECKSUM.size == _ENTRY.itemsize


def read_index(path: Path, base: int, generation: int) -> np.ndarray:
    """The good entries of the index of the segment at ``base``, in order, with the fields of ``Place``.

    There are none if the index is of another generation of the segment.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return np.empty(0, _ENTRY)
    header = _header(content, base)
    if header is None or header[1] != generation:
        return np.empty(0, _ENTRY)
    size = _ENTRY.itemsize
    good = size
    while good + size <= len(content) and _is_whole(content[good : good + size]):
        good += size
    return np.frombuffer(content[size:good], _ENTRY)


def is_damaged(path: Path, base: int) -> bool:
    """Whether an index is damaged: its header is not of this segment, or an entry has a wrong checksum. Less than an
    entry at its end, from an interrupted write, is not damage."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return False
    size = _ENTRY.itemsize
    if len(content) >= size and _header(content, base) is None:
        return True
    whole = range(size, len(content) - len(content) % size, size)
    return not all(_is_whole(content[at : at + size]) for at in whole)


def place_at(entries: np.ndarray, number: int) -> Place:
    return Place(*entries[number].item()[:5])


class IndexWriter:
    """Appends places to an index file. Errors with the file do not harm the log: the entries wait for the next ``add``,
    and a reader that misses them scans a little further."""

    def __init__(self, path: Path, base: int, generation: int = 0, kept: np.ndarray | None = None) -> None:
        """Rewrite the file with the entries to keep; keeps its creation time if it had one."""
        self.created = created_at(path, base) or time.time()
        content = _with_checksum(_HEADER.pack(_MAGIC, base, int(self.created * 1e6), generation))
        if kept is not None:
            content += kept.tobytes()
        self._waiting = [content]
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._end = 0
        self._flush()
        if self._end:
            os.ftruncate(self._fd, self._end)

    def add(self, place: Place) -> None:
        self._waiting.append(_with_checksum(_PLACE.pack(*place)))
        self._flush()

    def close(self) -> None:
        os.close(self._fd)

    def _flush(self) -> None:
        content = b"".join(self._waiting)
        try:
            written = os.pwrite(self._fd, content, self._end)
        except OSError:
            return
        if written == len(content):
            self._end += written
            self._waiting.clear()


def created_at(path: Path, base: int) -> float | None:
    """When the index, and so its segment, was started; None if the file does not say."""
    try:
        with path.open("rb") as file:
            header = _header(file.read(_ENTRY.itemsize), base)
    except FileNotFoundError:
        return None
    return None if header is None else header[0]


def _header(content: bytes, base: int) -> tuple[float, int] | None:
    """When the index was started, and the generation of its segment; None if it is not of this segment."""
    header = content[: _ENTRY.itemsize]
    if len(header) < _ENTRY.itemsize or not _is_whole(header):
        return None
    magic, found_base, micros, generation = _HEADER.unpack_from(header)
    return (micros / 1e6, generation) if (magic, found_base) == (_MAGIC, base) else None


def _with_checksum(fields: bytes) -> bytes:
    return fields + _CHECKSUM.pack(google_crc32c.value(fields))


def _is_whole(entry: bytes) -> bool:
    (found,) = _CHECKSUM.unpack_from(entry, _PLACE.size)
    return bool(google_crc32c.value(entry[: _PLACE.size]) == found)
