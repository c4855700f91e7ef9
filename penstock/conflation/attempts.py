"""How often, and when, a bundle that was refused is tried again."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0


@dataclass(frozen=True)
class Attempts:
    most: int
    """After so many attempts a bundle is given up."""

    def is_last(self, failures: int) -> bool:
        """Whether so many failures in a row are enough."""
        return failures >= self.most

    def pause(self, failures: int) -> float:
        """Seconds until the next attempt: twice as many each time."""
        pauses: float = FIRST_PAUSE * 2 ** min(failures - 1, 30)
        return min(LONGEST_PAUSE, pauses)
