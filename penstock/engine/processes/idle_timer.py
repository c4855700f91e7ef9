"""For how long something has not moved, in seconds that the watcher itself has lived through.

A watcher that was stopped, or whose machine slept, finds on waking that much time has passed in which it saw nothing,
and in which what it watches may have been stopped too. Such a gap counts for next to nothing.
"""

from __future__ import annotations

LONGEST_STEP = 1.0


class Stillness:
    def __init__(self) -> None:
        self._value: object = None
        self._looked: float | None = None
        self._still = 0.0

    def look(self, value: object, now: float) -> float:
        """Seconds for which the value has been the same; ``now`` is of a clock that nobody sets."""
        passed = 0.0 if self._looked is None else min(now - self._looked, LONGEST_STEP)
        self._looked = now
        if value != self._value:
            self._value, self._still = value, 0.0
        else:
            self._still += passed
        return self._still
