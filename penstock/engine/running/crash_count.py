"""How often a route may crash. One that is to run for good is always started again; one that is to end is given up."""

from __future__ import annotations

from penstock.backoff import Patience
from penstock.engine.lost_workers.lost_worker import NO_CONNECTION
from penstock.engine.running.query_end import TRANSIENT

ONCE_TRIES = 5
"""How often in a row a route may crash in a ``once`` run."""
ONCE_TRIES_WHEN_BUSY = 20
"""How often, if only a Python process of Spark's was slow to start."""


class CrashCount:
    """Counts what has happened since the last batch that was delivered."""

    def __init__(self, patience: Patience, once: bool) -> None:
        self._patience = patience
        self._once = once
        self._failures = 0
        self._slow_starts = 0

    @property
    def failures(self) -> int:
        """Crashes that were not just a slow start of a process."""
        return self._failures

    @property
    def total(self) -> int:
        return self._failures + self._slow_starts

    def clear(self) -> None:
        self._failures = self._slow_starts = 0

    def is_last(self, error: Exception) -> bool:
        """Count a crash; says whether the route is to be given up over it. What passes by itself does not count, but
        may not last longer than the patience of the delivery."""
        if isinstance(error, TRANSIENT):
            return self._patience.is_over()
        # Spark gives a Python process ten seconds to start, which is too few on a busy machine.
        if NO_CONNECTION in str(error):
            self._slow_starts += 1
            return self._once and self._slow_starts >= ONCE_TRIES_WHEN_BUSY
        self._failures += 1
        return self._once and self._failures >= ONCE_TRIES
