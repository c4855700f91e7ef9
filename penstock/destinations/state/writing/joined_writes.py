"""Which bundles are written together, in one transaction, and how many at most.

Each of them is written as if it were alone: its rows, its version and the position are one transaction, only not of its
own. What small bundles cost is the way to the database and back, the statements and the commit, and those are paid once
for all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from penstock.conflation.bundle import Unit
from penstock.conflation.kinds import Sync
from penstock.conflation.unit_state import Work

MOST = 250
"""So many bundles are written together at most."""
SMALL = 16 << 10
"""Bytes. What is larger is written by itself, so that several writers share the work."""


class JoinHistory:
    """What earlier writes say of the next ones. May be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = MOST
        self._long: set[Unit] = set()

    @property
    def limit(self) -> int:
        """How many are written together now: half as many each time that something of them was not taken, and slowly
        more again."""
        with self._lock:
            return self._now

    def takes_long(self, unit: Unit) -> bool:
        """Whether a unit, written by itself, took longer the last time than all of several may take together."""
        with self._lock:
            return unit in self._long

    def note_alone(self, unit: Unit, is_long: bool) -> None:
        with self._lock:
            (self._long.add if is_long else self._long.discard)(unit)

    def grow(self) -> None:
        with self._lock:
            self._now = min(MOST, self._now + max(1, self._now // 8))

    def shrink(self) -> None:
        with self._lock:
            self._now = max(2, self._now // 2)


@dataclass(frozen=True)
class JoinedWrites:
    """Which writes of a batch may be joined."""

    history: JoinHistory
    size: Callable[[Work], int]
    """The bytes of a write."""
    has_failed: Callable[[Work], bool]
    """Whether it was not taken the last time."""

    @property
    def most(self) -> int:
        return self.history.limit

    def may_join(self, work: Work) -> bool:
        """Packs are folded, and hybrids say more than how objects are: they are written by themselves."""
        if len(work.bundles) > 1 or work.kind.sync is Sync.HYBRID:
            return False
        return self.size(work) <= SMALL and not self.has_failed(work) and not self.history.takes_long(work.unit)
