"""Requests that were let go because their answer takes long: which keys they keep busy, and how they have ended.

A key with a request in flight gets no other one. Once the answer is there, the rows that it settles are noted for
whoever has them next, and are not sent again.
"""

from __future__ import annotations

import threading
from collections import Counter
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
        self._in_flight: dict[str, object] = {}
        self._of_sender: Counter[object] = Counter()
        self._woken: set[str] = set()
        self._ended = threading.Event()
        self._ended.set()

    def let_go(self, key: str, sender: object) -> None:
        """``sender``: who has the request."""
        with self._lock:
            self._in_flight[key] = sender
            self._of_sender[sender] += 1
            self._ended.clear()

    def end(self, key: str) -> None:
        """Note that the answer is there, and what it settles is noted."""
        with self._lock:
            sender = self._in_flight.pop(key, None)
            self._of_sender[sender] -= 1
            self._woken.add(key)
            if self._of_sender[sender] <= 0:
                del self._of_sender[sender]
            if not self._in_flight:
                self._ended.set()

    def is_in_flight(self, key: str) -> bool:
        with self._lock:
            return key in self._in_flight

    def count(self, but: object = None) -> int:
        """How many are in flight, without those of a sender."""
        with self._lock:
            return len(self._in_flight) - self._of_sender[but]

    def wait(self, seconds: float) -> None:
        """Wait until none is in flight, for so long at most."""
        self._ended.wait(seconds)

    def take_woken(self) -> Collection[str]:
        """The keys whose requests have ended since this was asked last."""
        with self._lock:
            woken, self._woken = self._woken, set()
            return woken
