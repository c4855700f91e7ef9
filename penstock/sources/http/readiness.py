"""Whether a worker should be sent traffic: the log takes writes, and it is not stopping. It owns its partition already:
before that it does not listen."""

from __future__ import annotations

import sys
from time import monotonic

FAILURE_MEMORY_SECONDS = 5.0


class Readiness:
    """A failed commit makes a worker unready for a few seconds only: without traffic it could never show that it has
    recovered."""

    def __init__(self) -> None:
        self.stopping = False
        self.disk_free = sys.maxsize
        """Bytes that the log's disk has left, as last looked at."""
        self._failed_at = -FAILURE_MEMORY_SECONDS

    def commit_failed(self) -> None:
        self._failed_at = monotonic()

    def commit_worked(self) -> None:
        self._failed_at = -FAILURE_MEMORY_SECONDS

    @property
    def problem(self) -> str | None:
        """Why not, in words; None when ready."""
        if self.stopping:
            return "stopping"
        if monotonic() - self._failed_at < FAILURE_MEMORY_SECONDS:
            return "the log could not be written a moment ago"
        return None
