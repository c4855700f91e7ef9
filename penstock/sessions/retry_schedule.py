"""When a request that was not accepted is sent again: after pauses that grow, and not for ever."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Share = Callable[[], float]
"""A random number from 0 up to 1, without 1."""


@dataclass(frozen=True)
class RetrySchedule:
    """Pauses grow from ``initial`` by ``factor`` up to ``longest``; each is longer or shorter by up to the share
    ``jitter``. Seconds."""

    initial: float = 5.0
    factor: float = 1.5
    jitter: float = 0.5
    longest: float = 30.0
    give_up_after: float = 300.0

    def pause(self, failures: int, share: Share) -> float:
        """The pause after so many failures in a row."""
        grown = self.initial
        for _ in range(failures - 1):
            grown = min(grown * self.factor, self.longest)
            if grown >= self.longest:
                break
        return min(grown, self.longest) * (1 - self.jitter + 2 * self.jitter * share())

    def is_over(self, failing_for: float) -> bool:
        """Whether a request that has failed for so long is given up."""
        return failing_for >= self.give_up_after
