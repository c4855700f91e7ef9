"""Waiting times that grow, with jitter, and end at once when a stop is asked for."""

from __future__ import annotations

import random
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
