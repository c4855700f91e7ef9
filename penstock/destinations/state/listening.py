"""Since when every source that reports is noted. Only a source that nobody heard of in such a time has fallen silent.

While the engine is stopped, the database away, or the route far behind, sources report and nobody notes it. That is our
silence, not theirs.
"""

from __future__ import annotations

import time

LONGEST_GAP = 30.0
"""Seconds between two turns."""


class Listening:
    """May be used by several threads."""

    def __init__(self) -> None:
        self._since = self._last_turn = time.monotonic()

    def take_turn(self) -> None:
        """Called again and again while the route runs: where that was left out for long it did not run."""
        now = time.monotonic()
        if now - self._last_turn > LONGEST_GAP:
            self._since = now
        self._last_turn = now

    def interrupt(self) -> None:
        """Note that something may have come up to now, and was not noted at the database."""
        self._since = time.monotonic()

    def has_lasted(self, seconds: float) -> bool:
        return time.monotonic() - self._since >= seconds
