"""Which bundles are written together, in one transaction, and how many at most.

Each of them is written as if it were alone: its rows, its version and the position are one transaction, only not of its
own. What small bundles cost is the way to the database and back, the statements and the commit, and those are paid once
for all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from penstock.conflation.kinds import Sync
from penstock.conflation.unit_state import Work

MOST = 250
"""So many bundles are written together at most."""
SMALL = 16 << 10
"""Bytes. What is larger is written by itself, so that several writers share the work."""


class JoinLimit:
    """How many are written together now: half as many each time that something of them was not taken, and slowly more
    again. May be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = MOST

    @property
    def now(self) -> int:
        with self._lock:
            return self._now

    def grow(self) -> None:
        with self._lock:
            self._now = min(MOST, self._now + max(1, self._now // 8))

    def shrink(self) -> None:
        with self._lock:
            self._now = max(2, self._now // 2)


@dataclass(frozen=True)
class JoinedWrites:
    """Which writes of a batch may be joined."""

    limit: JoinLimit
    size: Callable[[Work], int]
    """The bytes of a write."""
    has_failed: Callable[[Work], bool]
    """Whether it was not taken the last time."""

    @property
    def most(self) -> int:
        return self.limit.now

    def may_join(self, work: Work) -> bool:
        """Packs are folded, and hybrids say more than how objects are: they are written by themselves."""
        if len(work.bundles) > 1 or work.kind.sync is Sync.HYBRID:
            return False
        return self.size(work) <= SMALL and not self.has_failed(work)
