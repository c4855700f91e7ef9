"""The content of a file by byte positions, and whether it still is what was read of it before.

A file is the one we know if the first and the last bytes that we read are where they were; a file that replaced another
continues it if it holds everything that we read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple, Protocol

import google_crc32c
import numpy as np

from penstock.sources.file.file_progress import Position

EDGE_BYTES = 256
"""How many bytes at the start and at the end of what was read identify a file."""

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

    def is_complete(self) -> bool:
        """Whether the end is real: a compressed file may break off in the middle."""

    def close(self) -> None: ...


class PlainContent:
    """A plain file. It stays open, so it can be read to its end also after a rename or removal."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def stat(self) -> os.stat_result:
        return os.fstat(self._fd)

    def limit(self) -> int | None:
        return self.length()

    def length(self) -> int:
        return self.stat().st_size

    def is_complete(self) -> bool:
        return True

    def read(self, at: int, size: int) -> bytes:
        found = os.pread(self._fd, size, at)
        while 0 < len(found) < size and (more := os.pread(self._fd, size - len(found), at + len(found))):
            found += more
        return found

    def close(self) -> None:
        os.close(self._fd)


class Edges:
    """The first and the last bytes before a position, updated as reading goes on."""

    def __init__(self, head: bytes = b"", tail: bytes = b"") -> None:
        self._head, self._tail = head, tail

    def extend(self, taken: np.ndarray) -> None:
        """Extend them by ``taken``, the next bytes."""
        if len(self._head) < EDGE_BYTES:
            self._head += taken[: EDGE_BYTES - len(self._head)].tobytes()
        self._tail = (self._tail + taken[-EDGE_BYTES:].tobytes())[-EDGE_BYTES:]

    @property
    def sums(self) -> tuple[int, int]:
        return google_crc32c.value(self._head), google_crc32c.value(self._tail)


def edges(content: Content, position: Position) -> Edges | None:
    """The edges of what was read before ``position``; None if the content does not (or no longer) match it."""
    size = min(EDGE_BYTES, position.end)
    head = content.read(0, size)
    tail = content.read(position.end - size, size)
    found = Edges(head, tail)
    known = len(head) == len(tail) == size and (position.end == 0 or found.sums == (position.head, position.tail))
    return found if known else None


def may_share_content(head: bytes, position: Position) -> bool:
    """Whether a content with this ``head`` (its first bytes) may share content with the file of a position."""
    size = min(EDGE_BYTES, position.end)
    return len(head) < size or google_crc32c.value(head[:size]) == position.head


def holds_all_that_was_read(content: Content, position: Position) -> bool:
    """Whether the content begins with every byte that was read up to ``position``."""
    return edges(content, position) is not None and checksum(content, position.end) == position.sum


class Passed(NamedTuple):
    """Checksum, lines, edges and size of the first part of a content."""

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
        known.extend(np.frombuffer(chunk, np.uint8))
        at += len(chunk)
    return Passed(total, lines, known, at)
