"""The time of day at Google Analytics, by its own answers: it judges by that whether an event is too old.

The clock of this machine may be wrong for hours or days. Judged by it, good events would fail for good, or would be
sent and silently dropped.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

_AGREES = 2.0
"""Seconds by which an answer, which has whole seconds and took its way, may differ from a clock that is right."""


@dataclass
class ServerClock:
    """Runs on from the last answer, by a clock that nobody sets."""

    _answered: tuple[float, float] | None = None
    """The server's time in an answer, and when that came."""

    @property
    def is_known(self) -> bool:
        return self._answered is not None

    def observe(self, date: str | None) -> None:
        """Take the ``Date`` of an answer; one that cannot be read says nothing."""
        try:
            said = parsedate_to_datetime(date or "").timestamp()
        except (ValueError, TypeError, OverflowError):
            return
        # If the clock of this machine is right, it is the finer one.
        ours = time.time()
        self._answered = ours if abs(ours - said) <= _AGREES else said, _running()

    def now(self) -> float:
        """Seconds since 1970. By this machine's clock only if no answer had a time."""
        if self._answered is None:
            return time.time()
        said, came = self._answered
        return said + _running() - came


def _running() -> float:
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
