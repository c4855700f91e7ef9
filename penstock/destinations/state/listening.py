"""Since when every source that reports is noted. Only a source that nobody heard of in such a time has fallen silent.

While the engine is stopped, the database away, or the route far behind, sources report and nobody notes it. That is our
silence, not theirs. Nor are they silent because the database's clock, by which it is told, was set forward.
"""

from __future__ import annotations

import time

LONGEST_GAP = 30.0
"""Seconds between two turns."""
TOLERANCE = 5.0
"""Seconds by which the database's clock may run ahead of ours before it counts as set."""


class Listening:
    """May be used by several threads."""

    def __init__(self) -> None:
        self._since = self._last_turn = time.monotonic()
        self._ahead: float | None = None

    def take_turn(self) -> None:
        """Called again and again while the route runs: where that was left out for long it did not run."""
        now = time.monotonic()
        if now - self._last_turn > LONGEST_GAP:
            self._since = now
        self._last_turn = now

    def interrupt(self) -> None:
        """Note that something may have come up to now, and was not noted at the database."""
        self._since = time.monotonic()

    def compare_clock(self, database_clock: float) -> float:
        """Begin anew if the database's clock was set forward: what was noted before would look older than it is.
        Returns by how many seconds it was set. One that is set back makes nothing look older, but may be set right
        again."""
        ahead = database_clock - time.monotonic()
        by = 0.0 if self._ahead is None else ahead - self._ahead
        if by > TOLERANCE:
            self.interrupt()
        if self._ahead is None or not 0 <= by <= TOLERANCE:
            self._ahead = ahead
        return by if by > TOLERANCE else 0.0

    def has_lasted(self, seconds: float) -> bool:
        return time.monotonic() - self._since >= seconds
