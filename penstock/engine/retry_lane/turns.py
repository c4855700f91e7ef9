"""A lock that is given in the order in which it was asked for.

Batches and retries of a route take turns. A plain lock may be taken again by whoever has just given it back: batches
that follow each other at once would keep a retry waiting for ever.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType


class TurnLock:
    """Used as a ``threading.Lock`` is."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()
        """Who has it, and who waits for it behind."""

    def acquire(self, timeout: float | None = None) -> bool:
        """Wait for one's turn, for ``timeout`` seconds at most. Returns whether it came."""
        me = object()
        with self._changed:
            self._queue.append(me)
            if self._changed.wait_for(lambda: self._queue[0] is me, timeout):
                return True
            self._queue.remove(me)
            return False

    def release(self) -> None:
        with self._changed:
            self._queue.popleft()
            self._changed.notify_all()

    def locked(self) -> bool:
        with self._changed:
            return bool(self._queue)

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        with self._changed:
            return max(0, len(self._queue) - 1)

    @contextmanager
    def within(self, patience: float) -> Iterator[bool]:
        """A turn, if it comes in time: says whether it did."""
        mine = self.acquire(patience)
        try:
            yield mine
        finally:
            if mine:
                self.release()

    def __enter__(self) -> TurnLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
