"""The progress of work that reads a whole partition, for display."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int, int], None]
"""Called with the partition, the bytes done, and the bytes in total."""


def silent(partition: int, done: int, total: int) -> None:
    """Shows nothing."""


class Meter:
    """Counts the bytes of one partition and reports them to ``progress``."""

    def __init__(self, partition: int, total: int, progress: Progress) -> None:
        self._partition = partition
        self._total = total
        self._progress = progress
        self._done = 0
        progress(partition, 0, total)

    def add(self, count: int) -> None:
        self._done = min(self._done + count, self._total)
        self._progress(self._partition, self._done, self._total)
