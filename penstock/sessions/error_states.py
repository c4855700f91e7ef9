"""Which sessions are in error, until when each is left alone, and what that means for all of them together.

The error of a session ends with a success of that session, and of no other. Time is given to every call, in seconds of
a clock that nobody sets.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.sessions.retry_schedule import RetrySchedule, Share

BUSY_STATUSES = frozenset((429, 503))
"""By these a server says that it has too much to do."""
SEVERAL = 3
"""So many sessions that are told to come back later, while none is accepted, speak for the whole server."""


@dataclass(frozen=True)
class SessionError:
    """A session of which the oldest request was not accepted yet."""

    since: float
    last: float
    failures: int
    reason: str
    not_before: float
    """When it is tried again."""
    asked: bool = False
    """Whether the server has said when, because it has too much to do."""


@dataclass
class ErrorStates:
    """May be used by several threads."""

    schedule: RetrySchedule
    share: Share
    timeout: float | None = None
    """Seconds without a new error after which a session no longer counts as failing; ``None``: only success ends it."""
    _errors: dict[str, SessionError] = field(default_factory=dict)
    _all_not_before: float = 0.0
    _accepted_at: float = float("-inf")
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def note_failure(self, session: str, reason: str, now: float, status: int = 0, wait: float | None = None) -> float:
        """Note that a request was not accepted; returns in how many seconds it is tried again. ``wait``: what the
        server asked for."""
        with self._lock:
            before = self._errors.get(session)
            failures = 1 if before is None else before.failures + 1
            # To come earlier than asked is what the server objects to; to come later does no harm.
            pause = self.schedule.pause(failures, self.share) if wait is None else wait
            since = now if before is None else before.since
            asked = wait is not None and status in BUSY_STATUSES
            self._errors[session] = SessionError(since, now, failures, reason, now + pause, asked)
            if asked:
                self._spread(now)
            return self.seconds_left(session, now)

    def note_success(self, session: str, now: float) -> None:
        """The error of this session has ended, and the server takes requests."""
        with self._lock:
            self._errors.pop(session, None)
            self._accepted_at = now
            self._all_not_before = 0.0

    def seconds_left(self, session: str, now: float) -> float:
        """In how many seconds a session may be tried; 0 if now."""
        error = self._errors.get(session)
        own = 0.0 if error is None else error.not_before
        return max(0.0, own - now, self._all_not_before - now)

    def is_over(self, session: str, now: float) -> bool:
        """Whether the oldest request of a session has failed for longer than it is to be sent again."""
        error = self._errors.get(session)
        return error is not None and self.schedule.is_over(now - error.since)

    def forget(self, session: str) -> None:
        """Its oldest request is settled in another way."""
        with self._lock:
            self._errors.pop(session, None)

    def failing(self, now: float) -> Mapping[str, SessionError]:
        """The sessions that are in error."""
        with self._lock:
            found = dict(self._errors)
        if self.timeout is None:
            return found
        return {name: error for name, error in found.items() if now - error.last < self.timeout}

    def reason(self, session: str) -> str:
        error = self._errors.get(session)
        return "" if error is None else error.reason

    def _spread(self, now: float) -> None:
        told = [error for error in self._errors.values() if error.asked and error.not_before > now]
        if len(told) >= SEVERAL and all(error.last >= self._accepted_at for error in told):
            self._all_not_before = max(error.not_before for error in told)
