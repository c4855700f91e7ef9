"""Backoff with jitter, a limit on the total wait, and reminders while waiting."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass


@dataclass
class Backoff:
    """Each ``next()`` is longer than the one before, up to ``cap``; ``reset()`` after a success."""

    first: float = 0.2
    factor: float = 2.0
    cap: float = 30.0
    _current: float = 0.0

    def next(self) -> float:
        self._current = min(self.cap, self._current * self.factor if self._current else self.first)
        # Half fixed, half random: routes that failed together do not come back together.
        return self._current * (0.5 + random.random() / 2)

    @property
    def waited(self) -> bool:
        """Whether there was a failure since the start or the last reset."""
        return self._current > 0

    def reset(self) -> None:
        self._current = 0.0


@dataclass
class Patience:
    """How long to wait for something unavailable: ``limit`` seconds since it was first missed, or for ever."""

    limit: float | None = None
    _since: float | None = None

    def is_over(self) -> bool:
        """Whether the limit has passed. Call it whenever the thing is missing; the first call starts the clock."""
        if self._since is None:
            self._since = time.monotonic()
        return self.limit is not None and time.monotonic() - self._since >= self.limit

    def at_most(self, wait: float) -> float:
        """The wait, or less if patience ends before."""
        if self.limit is None or self._since is None:
            return wait
        return min(wait, max(0.0, self._since + self.limit - time.monotonic()))

    def reset(self) -> None:
        """The thing is there again."""
        self._since = None


@dataclass
class Reminder:
    """When to repeat a message: at once, then after pauses that double, up to ``cap`` seconds."""

    first: float = 10.0
    cap: float = 600.0
    _pause: float = 0.0
    _due: float | None = None

    def is_due(self, now: float) -> bool:
        """Whether to repeat it now, by a monotonic clock; if so, the next pause begins."""
        if self._due is not None and now < self._due:
            return False
        self._pause = min(self.cap, self._pause * 2 or self.first)
        self._due = now + self._pause
        return True
