"""The order between partitions: a logical clock that all writers of a log share, in any process.

Every append gets a *stamp*, higher than every stamp that was given before it began. So an append that was acknowledged
before another was sent has the lower stamp, whatever their partitions. Appends that overlap may get the same one: their
order is undefined. No wall clock is used, so a clock that is set cannot break the order.

The clock is a small file with two numbers for each partition, which only that partition's writer changes, in turn: a
reader that meets a write finds the other number whole. A new stamp is one more than the highest number there. No lock
is needed, a process that is killed or stopped blocks nobody, and the system keeps what it wrote.

A power cut may leave an old file, or none. So whoever opens a partition for writing first finds the last stamp in every
partition of the log, and sets its own number to the highest of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from penstock.errors import LogError
from penstock.log.format.frame import HEADER_BYTES, BadFrame, decode_header
from penstock.log.format.head import read_head
from penstock.log.format.log_files import segment_bases, segment_path
from penstock.log.format.segment import Segment, after

CLOCK_FILE = "clock"
UNSTAMPED = 0
"""The stamp of records that predate stamps: they are older than all others."""
_PAIR = 16
_NO_STAMP_ABOVE = 2**62
"""No stamp is above this number: a file that has one is damaged."""


class Clock:
    """The clock of a log, as one writer uses it. Not for several threads."""

    def __init__(self, log_dir: Path, partition: int, others: Iterable[Path]) -> None:
        """``others`` are the folders of all partitions; the clock starts above their last stamps."""
        self._path = log_dir / CLOCK_FILE
        self._place = partition * _PAIR
        self._content = bytearray(4096)
        self._fd = self._open()
        try:
            # The lower one first: a reader that meets the write must find the higher one whole.
            first, second = memoryview(os.pread(self._fd, _PAIR, self._place).ljust(_PAIR, b"\0")).cast("q")
            self._turn = int(second < first)
            self.last = max([self._highest(), *(last_stamp(directory) for directory in others)])
        except BaseException:
            os.close(self._fd)
            raise

    def tick(self) -> int:
        """A stamp above all that were given before this call, by any writer of the log."""
        if os.fstat(self._fd).st_nlink == 0:
            # Somebody has removed or replaced the file: writers opened since then use another one.
            gone, self._fd = self._fd, self._open()
            os.close(gone)
        self.last = max(self.last, self._highest()) + 1
        self._set(self.last)
        return self.last

    def close(self) -> None:
        os.close(self._fd)

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _highest(self) -> int:
        while (size := os.preadv(self._fd, [self._content], 0)) == len(self._content):
            self._content = bytearray(2 * len(self._content))
        # A few numbers, before every append: numpy would take longer.
        numbers = memoryview(self._content)[: size // 8 * 8].cast("q")
        highest = max(numbers, default=UNSTAMPED)
        if highest > _NO_STAMP_ABOVE:
            highest = max((number for number in numbers if number <= _NO_STAMP_ABOVE), default=UNSTAMPED)
        return max(highest, UNSTAMPED)

    def _set(self, stamp: int) -> None:
        os.pwrite(self._fd, stamp.to_bytes(8, sys.byteorder), self._place + 8 * self._turn)
        self._turn = 1 - self._turn


def last_stamp(partition_dir: Path) -> int:
    """The highest stamp in a partition, also of frames after its head: a power cut may have left an old head."""
    published = UNSTAMPED
    try:
        head = read_head(partition_dir)
        published = UNSTAMPED if head is None else head.stamp
    except LogError:
        pass
    for base in reversed(segment_bases(partition_dir)):
        try:
            found = _last_in(Segment(segment_path(partition_dir, base), base))
        except FileNotFoundError:
            continue
        if found is not None:
            return max(published, found)
    return published


def _last_in(segment: Segment) -> int | None:
    """The stamp of the segment's last whole header; None if it has no record. Its end may be torn, or being written."""
    found = None
    place = segment.last_mark
    while True:
        try:
            header = decode_header(segment.content[place.position : place.position + HEADER_BYTES])
        except BadFrame:
            return found
        if header.records or header.stamp:
            found = header.stamp
        place = after(place, header)
