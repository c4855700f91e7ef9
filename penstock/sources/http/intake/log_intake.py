"""Appends the records of a request to the log: all of them durable, or the request refused."""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.errors import AppendTooLarge, LogFull
from penstock.log.group_commit import Entry
from penstock.sources.http import responses
from penstock.sources.http.config import LARGEST_APPEND
from penstock.sources.http.intake.pending_commits import PendingCommits
from penstock.sources.http.metrics import Tally
from penstock.sources.http.readiness import Readiness
from penstock.sources.http.responses import Refused

_log = logging.getLogger("penstock.http")


class LogIntake:
    """The way into the log. ``commits`` is set once the worker owns its partition."""

    def __init__(self, tally: Tally, readiness: Readiness) -> None:
        self.commits: PendingCommits | None = None
        self.log_broke: Callable[[], None] = lambda: None
        """Called when the log fails for another reason than a full disk: only reopening can repair that."""
        self._tally = tally
        self._readiness = readiness

    async def append(self, batch: list[Entry]) -> None:
        """Append the records; returns when all are durable, or raises ``Refused``."""
        waiting = self.commits.submit(batch) if self.commits is not None else None
        if waiting is None:
            raise Refused(responses.OVERLOADED)
        error = await waiting
        if isinstance(error, AppendTooLarge):
            raise Refused(responses.too_large_with_context(LARGEST_APPEND))
        if error is not None:
            self._readiness.commit_failed()
            _log.error("nothing of %d records was taken: %s", len(batch), error)
            if isinstance(error, LogFull):
                raise Refused(responses.LOG_FULL)
            self.log_broke()
            raise Refused(responses.LOG_FAILED)
        self._readiness.commit_worked()
        self._tally.bytes += sum([len(entry.data) for entry in batch])
