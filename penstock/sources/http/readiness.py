"""Whether a worker should get traffic: the log takes writes, its disk has room, and the worker is not stopping. It owns
its partition already: before that it does not listen."""

from __future__ import annotations

import sys
from pathlib import Path
from time import monotonic

from penstock.failing_targets import FailingTarget, failing_targets
from penstock.heartbeat import SILENT, read_beat

FAILURE_MEMORY_SECONDS = 5.0


class Readiness:
    """A failed commit makes a worker unready for a few seconds only: without traffic it could never show that it has
    recovered."""

    def __init__(self, disk_reserve: int = 0) -> None:
        self.stopping = False
        self._disk_reserve = disk_reserve
        self.disk_free = sys.maxsize
        """Bytes left on the log's disk at the last check."""
        self._failed_at = -FAILURE_MEMORY_SECONDS
        self.run_dir: Path | None = None
        """Where the engine writes its heartbeat."""
        self.refusal: FailingTarget | None = None
        """A target that fails, for which what comes is refused, at the last check."""

    def check_targets(self, source: str) -> None:
        """Look whether a route from this source wants it to refuse what comes."""
        targets = [] if self.run_dir is None else failing_targets(self.run_dir)
        refusing = [each for each in targets if each.refuse and source in each.sources]
        self.refusal = max(refusing, key=lambda each: each.retry_after, default=None)

    @property
    def engine(self) -> str:
        """The state of the engine, for information: events are taken, and safe, also without one."""
        beat = None if self.run_dir is None else read_beat(self.run_dir)
        if beat is None:
            return "unknown"
        return "ok" if beat.silence() <= SILENT else f"silent for {beat.silence():.0f} s"

    @property
    def disk_is_full(self) -> bool:
        """Whether what is left on the disk is for those who deliver."""
        return self.disk_free < self._disk_reserve

    def commit_failed(self) -> None:
        self._failed_at = monotonic()

    def commit_worked(self) -> None:
        self._failed_at = -FAILURE_MEMORY_SECONDS

    @property
    def problem(self) -> str | None:
        """Why the worker is not ready; None when it is."""
        if self.stopping:
            return "stopping"
        if self.disk_is_full:
            return "the disk is full; events are taken again when there is room"
        if self.refusal is not None:
            return self.refusal.refuse
        if monotonic() - self._failed_at < FAILURE_MEMORY_SECONDS:
            return "the log could not be written a moment ago"
        return None
