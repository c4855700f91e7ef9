"""Measures for how long something has not changed, in seconds in which the watcher itself ran.

When a watcher was stopped, or its machine slept, much time has passed in which it saw nothing and in which the thing it
watches may have been stopped too. Such a gap counts as at most ``LONGEST_STEP``.
"""

from __future__ import annotations

LONGEST_STEP = 1.0


class IdleTimer:
    def __init__(self) -> None:
        self._value: object = None
        self._looked: float | None = None
        self._still = 0.0

    def observe(self, value: object, now: float) -> float:
        """Seconds for which the value has been the same; ``now`` is monotonic time."""
        passed = 0.0 if self._looked is None else min(now - self._looked, LONGEST_STEP)
        self._looked = now
        if value != self._value:
            self._value, self._still = value, 0.0
        else:
            self._still += passed
        return self._still
