"""How many requests a server is given at a time.

A server that keeps up answers about as fast with one request more. So the limit grows while answers are
hardly slower than the fastest ones, and shrinks by a part when they are, or when the server says that it is busy.
"""

from __future__ import annotations

from dataclasses import dataclass

SLOWER = 2.0
"""By this factor beyond the fastest answers, a server is taken for busy."""
BACK_OFF = 0.8
_FORGET = 1.001
"""By this factor the fastest time grows with every answer: a server may become slower for good."""


@dataclass
class AdaptiveLimit:
    """Between ``least`` and ``most``; fixed if they are the same."""

    most: int
    least: int = 0
    """0: as ``most``."""
    _current: float = 0.0
    _fastest: float = float("inf")
    _shrunk_at: int = 0
    _answers: int = 0

    def __post_init__(self) -> None:
        self.least = self.least or self.most
        self._current = float(self.least)

    @property
    def value(self) -> int:
        return int(self._current)

    def observe(self, seconds: float, is_good: bool, in_flight: int) -> None:
        """Note an answer, with the number of requests that were in flight when it came."""
        self._answers += 1
        self._fastest = min(self._fastest * _FORGET, seconds) if is_good else self._fastest
        if is_good and seconds <= self._fastest * SLOWER:
            # A limit that nobody reaches says nothing about the server.
            if in_flight >= self.value:
                self._current = min(self.most, self._current + 1 / self._current)
        elif self._answers - self._shrunk_at >= self._current:
            # Once for all that were in flight together.
            self._shrunk_at = self._answers
            self._current = max(self.least, self._current * BACK_OFF)
