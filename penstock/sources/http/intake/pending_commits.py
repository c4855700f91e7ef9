"""Between the event loop and the log's commit thread: requests wait here until their events are durable.

The commit thread finishes many submissions at once. Their futures are resolved by one callback per group, not one per
request: waking the loop is the largest cost of a small request.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future
from collections import deque
from time import monotonic

from penstock.log.group_commit import Entry, GroupCommit
from penstock.sources.http.metrics import Tally

_Waiting = Future[Exception | None]


class PendingCommits:
    """Submits entries and reports the result to the event loop. Use it on the loop's thread only."""

    def __init__(self, group: GroupCommit, loop: AbstractEventLoop, tally: Tally) -> None:
        self._group = group
        self._loop = loop
        self._tally = tally
        self._finished: deque[tuple[_Waiting, float, Exception | None]] = deque()
        self._awake = False

    def submit(self, entries: list[Entry]) -> _Waiting | None:
        """A future that is None once all entries are durable, or raises the error that kept all of them out.

        None instead of a future: too much is waiting already, nothing was taken.
        """
        waiting: _Waiting = self._loop.create_future()
        started = monotonic()

        def done(_: range | None, error: Exception | None) -> None:
            self._finished.append((waiting, started, error))
            if not self._awake:
                self._awake = True
                self._loop.call_soon_threadsafe(self._resolve)

        return waiting if self._group.submit(entries, done) else None

    def _resolve(self) -> None:
        # Cleared before the queue is emptied: anything appended from now on wakes the loop again.
        self._awake = False
        now = monotonic()
        while self._finished:
            waiting, started, error = self._finished.popleft()
            self._tally.count_commit(now - started)
            if not waiting.done():
                waiting.set_result(error)
