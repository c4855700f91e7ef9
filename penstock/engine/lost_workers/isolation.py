"""Carrying what a worker was lost over, apart from everything else, until the record is found that it was lost over.

A lost worker proves nothing: somebody may have killed it, or the machine was out of memory. So the range is carried
again, in a process of its own, and cut in halves only if that is lost too. A record counts as the cause when it has
ended its process, alone in it, each of ``TRIES_ALONE`` times. The last of them has plenty of time: what is slow for a
reason of its own, such as code that is compiled at its first use on a busy machine, is not the record's fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.engine.delivery.batch_pieces import Ranges, span
from penstock.engine.delivery.task_report import BatchReport
from penstock.engine.lost_workers.lost_worker import LostCode, WorkerLost

TRIES_ALONE = 3
PLENTY = 60.0
"""Seconds that a record has at least before it is said to hang."""
SHORTEST = 1 / 8
"""The part of its time that the smallest range gets before it is cut or, alone, gets all of it."""

Attempt = Callable[[Ranges, float | None], BatchReport]
"""Carries ranges, with a limit in seconds, where a death harms nobody. Raises ``WorkerLost``."""


@dataclass(frozen=True)
class Apart:
    """``whole``: how many offsets the range had over which a worker was ``lost``; ``limit``: what steps may take."""

    attempt: Attempt
    limit: float | None
    whole: int = 0
    lost: WorkerLost | None = None
    plenty: float = PLENTY

    def carry(self, ranges: Ranges) -> BatchReport:
        """Raises ``WorkerLost``: the range is to be cut, or if it is a single record, that is the one."""
        offsets = span(ranges)
        if offsets > 1:
            if self.lost is not None and self.lost.code is LostCode.TIMED_OUT and offsets >= self.whole:
                raise self.lost  # It had its time, and it is long.
            return self.attempt(ranges, self._share(offsets))
        for _ in range(TRIES_ALONE - 1):
            try:
                return self.attempt(ranges, self.limit)
            except WorkerLost:
                continue
        return self.attempt(ranges, None if self.limit is None else max(self.limit, self.plenty))

    def _share(self, offsets: int) -> float | None:
        """A hang costs its whole limit each time the range is halved, so shorter ranges get less. One that is only slow
        is cut too early by that, which costs time and nothing else: alone a record gets all of it."""
        if self.limit is None or self.whole == 0:
            return self.limit
        return self.limit * min(1.0, max(SHORTEST, offsets / self.whole))
