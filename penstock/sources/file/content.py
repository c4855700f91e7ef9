"""The content of a file as a stream of bytes with places, and whether it is still what was read of it before.

A file is the one we know if the first and the last bytes of what we read are where they were; a file that took the
place of another is its continuation if everything that we read is in it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple, Protocol

import google_crc32c
import numpy as np

from penstock.sources.file.file_progress import Position

EDGE_BYTES = 256
"""How much of the beginning, and of the end of what was read, is looked at to know a file again."""

_CHUNK = 2**20


class Content(Protocol):
    """What is in a file, unpacked."""

    def read(self, at: int, size: int) -> bytes:
        """``size`` bytes from ``at`` on; fewer only where the content ends for now."""

    def stat(self) -> os.stat_result:
        """Of the open file."""

    def limit(self) -> int | None:
        """Where the content ends now, if that is known without reading it."""

    def length(self) -> int:
        """Where the content ends now."""

    def whole(self) -> bool:
        """Whether, at the end, it really ends there: a compressed file may break off in the middle."""

    def close(self) -> None: ...


class PlainContent:
    """A file as it is. It stays open, so it can be read to its end also when it has been renamed or removed."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def stat(self) -> os.stat_result:
        return os.fstat(self._fd)

    def limit(self) -> int | None:
        return self.length()

    def length(self) -> int:
        return self.stat().st_size

    def whole(self) -> bool:
        return True

    def read(self, at: int, size: int) -> bytes:
        found = os.pread(self._fd, size, at)
        while 0 < len(found) < size and (more := os.pread(self._fd, size - len(found), at + len(found))):
            found += more
        return found

    def close(self) -> None:
        os.close(self._fd)


class Edges:
    """The first and the last bytes before a place, carried along while reading goes on."""

    def __init__(self, head: bytes = b"", tail: bytes = b"") -> None:
        self._head, self._tail = head, tail

    def move(self, taken: np.ndarray) -> None:
        """Over ``taken``, which came next."""
        if len(self._head) < EDGE_BYTES:
            self._head += taken[: EDGE_BYTES - len(self._head)].tobytes()
        self._tail = (self._tail + taken[-EDGE_BYTES:].tobytes())[-EDGE_BYTES:]

    @property
    def sums(self) -> tuple[int, int]:
        return google_crc32c.value(self._head), google_crc32c.value(self._tail)


def edges(content: Content, position: Position) -> Edges | None:
    """The edges of what was read before ``position``; None if the content is not (or no longer) the one it is of."""
    size = min(EDGE_BYTES, position.end)
    head = content.read(0, size)
    tail = content.read(position.end - size, size)
    found = Edges(head, tail)
    known = len(head) == len(tail) == size and (position.end == 0 or found.sums == (position.head, position.tail))
    return found if known else None


def begins_alike(head: bytes, position: Position) -> bool:
    """Whether a content with this ``head`` (its first bytes) may be akin to the one that a position is of."""
    size = min(EDGE_BYTES, position.end)
    return len(head) < size or google_crc32c.value(head[:size]) == position.head


def holds_all_that_was_read(content: Content, position: Position) -> bool:
    """Whether the content begins with every byte that was read up to ``position``, wherever it is now."""
    return edges(content, position) is not None and checksum(content, position.end) == position.sum


class Passed(NamedTuple):
    """What a stretch at the beginning of a content was like."""

    sum: int
    lines: int
    edges: Edges
    bytes: int


def checksum(content: Content, end: int) -> int | None:
    """Of the first ``end`` bytes; None if there are fewer."""
    passed = pass_over(content, end)
    return passed.sum if passed.bytes == end else None


def pass_over(content: Content, end: int) -> Passed:
    """Through the first ``end`` bytes, or all if there are fewer."""
    total, lines, at, known = 0, 0, 0, Edges()
    while at < end and (chunk := content.read(at, min(_CHUNK, end - at))):
        total = google_crc32c.extend(total, chunk)
        lines += chunk.count(b"\n")
        known.move(np.frombuffer(chunk, np.uint8))
        at += len(chunk)
    return Passed(total, lines, known, at)
