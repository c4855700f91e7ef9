"""Isolates a range over which a worker was lost, to find the record that caused it.

A lost worker proves nothing: somebody may have killed it, or the machine was out of memory. So the range is staged
again in its own process, and split in halves only if that is lost too. A record counts as the cause when it has ended
its process, alone in it, each of ``TRIES_ALONE`` times. The last try has plenty of time: what is slow for another
reason, such as code that is compiled at its first use on a busy machine, is not the record's fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa

from penstock.engine.delivery.batch_pieces import Ranges, offset_count
from penstock.engine.delivery.task_report import BatchReport
from penstock.engine.lost_workers.lost_worker import LostCode, WorkerLost

TRIES_ALONE = 3
GENEROUS_LIMIT = 60.0
"""Seconds that a single record gets at least before it counts as hung."""
MIN_SHARE = 1 / 8
"""The share of the limit that the smallest range gets. A record alone gets all of it."""

What = TypeVar("What", Ranges, pa.RecordBatch)
"""Ranges, or the places of single items."""


@dataclass(frozen=True)
class Isolation(Generic[What]):
    """``total_offsets``: the size of the range over which a worker was ``lost``; ``limit``: seconds for the steps."""

    attempt: Callable[[What, float | None], BatchReport]
    """Stages it, with a limit in seconds, where a crash harms nobody. Raises ``WorkerLost``."""
    limit: float | None
    total_offsets: int = 0
    lost: WorkerLost | None = None
    plenty: float = GENEROUS_LIMIT

    def stage(self, ranges: What) -> BatchReport:
        """Stage them. Raises ``WorkerLost``: split them; a single record is the cause."""
        offsets = ranges.num_rows if isinstance(ranges, pa.RecordBatch) else offset_count(ranges)
        if offsets > 1:
            if self.lost is not None and self.lost.code is LostCode.TIMED_OUT and offsets >= self.total_offsets:
                raise self.lost  # It had its time; a second try would cost as much.
            return self.attempt(ranges, self._share(offsets))
        for _ in range(TRIES_ALONE - 1):
            try:
                return self.attempt(ranges, self.limit)
            except WorkerLost:
                continue
        return self.attempt(ranges, None if self.limit is None else max(self.limit, self.plenty))

    def _share(self, offsets: int) -> float | None:
        """A hang costs its whole limit each time the range is halved, so shorter ranges get less. A range that is only
        slow is split too early, which costs nothing but time: a record alone gets the whole limit."""
        if self.limit is None or self.total_offsets == 0:
            return self.limit
        return self.limit * min(1.0, max(MIN_SHARE, offsets / self.total_offsets))
