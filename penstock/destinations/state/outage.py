"""A database that cannot be reached is left alone for a while, longer each time: to find out may take seconds."""

from __future__ import annotations

import time

from penstock.backoff import Backoff

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 5.0
"""Seconds. Short enough to catch up soon after it is back."""


class Outage:
    def __init__(self) -> None:
        self._backoff = Backoff(first=FIRST_PAUSE, cap=LONGEST_PAUSE)
        self._until = 0.0
        self._reason = ""

    def begin(self, reason: str) -> None:
        """Note that the database could not be reached just now."""
        self._reason = reason
        self._until = time.monotonic() + self._backoff.next()

    def end(self) -> None:
        self._backoff.reset()
        self._until = 0.0

    def reason(self) -> str | None:
        """Why the database is left alone now; ``None`` if it is not."""
        return self._reason if self.pause > 0 else None

    @property
    def pause(self) -> float:
        """Seconds until it is tried again."""
        return max(0.0, self._until - time.monotonic())
