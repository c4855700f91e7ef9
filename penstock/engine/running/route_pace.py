"""How a route takes from the log: how often, and how much at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event

LOOK_EVERY = 0.25
"""Seconds between looks whether there is enough for a batch."""


@dataclass(frozen=True)
class Pace:
    every: float
    max_records: int
    max_bytes: int
    once: bool = False
    """Deliver what is in the log now, then end."""
    in_rounds: bool = False
    """Deliver everything in the log, in as many batches as it needs, then wait until the next round is due."""
    gathers: bool = False
    """``every`` is how long a batch waits for more; it begins sooner if there is enough."""

    @property
    def has_end(self) -> bool:
        """Whether a query ends by itself, once it has delivered what was there."""
        return self.once or self.in_rounds

    @property
    def look_every(self) -> float:
        """How often an idle route looks for records."""
        return min(self.every, LOOK_EVERY) if self.gathers else self.every

    def wait_for_next(self, began: float, stopping: Event, has_enough: Callable[[], bool]) -> None:
        """Wait until the batch after the one that ``began`` then, in monotonic time, is due."""
        if self.has_end:
            return
        while (left := began + self.every - time.monotonic()) > 0 and not stopping.wait(min(left, self.look_every)):
            if self.gathers and has_enough():
                return
