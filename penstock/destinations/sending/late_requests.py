"""Requests that were let go because their answer takes long: which keys they keep busy, and how they have ended.

A key with a request in flight gets no other one. Once the answer is there, the rows that it settles are noted for
whoever has them next, and are not sent again.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass

Place = tuple[int, int, int]
"""Partition, offset and item of a row."""


@dataclass(frozen=True)
class LateEnd:
    """Rows that were accepted, or refused, after their batch had gone on without them."""

    first: Place
    last: Place
    rows: int
    refused: str = ""
    """Why; empty if they were accepted."""


class LateRequests:
    """Used by the event loop and by the thread that writes batches."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_flight: set[str] = set()
        self._woken: set[str] = set()

    def let_go(self, key: str) -> None:
        with self._lock:
            self._in_flight.add(key)

    def end(self, key: str) -> None:
        """Note that the answer is there, and what it settles is noted."""
        with self._lock:
            self._in_flight.discard(key)
            self._woken.add(key)

    def is_in_flight(self, key: str) -> bool:
        with self._lock:
            return key in self._in_flight

    @property
    def count(self) -> int:
        with self._lock:
            return len(self._in_flight)

    def take_woken(self) -> Collection[str]:
        """The keys whose requests have ended since this was asked last."""
        with self._lock:
            woken, self._woken = self._woken, set()
            return woken
