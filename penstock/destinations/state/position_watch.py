"""Notices while a route runs that its database has gone back: an older copy was put back, or a server that lags behind
has taken over.

Positions at the database only grow. One that is lower than it was at the last batch tells that what was written since
is gone, and it must be noticed before the next write moves it on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.destinations.state.store.contract import StateStore
from penstock.errors import TargetWentBackError

Positions = Mapping[tuple[str, int], int]
"""By name and partition."""


class PositionWatch:
    """``note`` and ``forget`` are called by one thread at a time; ``check`` perhaps by another."""

    def __init__(self) -> None:
        self._last: Positions = {}
        self.has_gone_back = False
        """Whether ``check`` has found that, and nobody has looked since where the database stands."""

    def check(self, store: StateStore) -> None:
        """Raises ``TargetWentBackError`` if the database has gone back since ``note``."""
        # First what is known, then what is there: it grows meanwhile.
        known = self._last
        there = _positions(store, {name for name, _ in known})
        for (name, partition), last in known.items():
            now = there.get((name, partition), 0)
            if now < last:
                self.has_gone_back = True
                raise TargetWentBackError(
                    "PEN-DST-147",
                    f"the database has gone back: '{name}' stood at offset {last} of partition {partition}, and stands"
                    f" at {now}. An older copy of it was put back, or another server has taken over.",
                    "Nothing to do: the route starts again, and goes back to what the database lacks.",
                )

    def forget(self) -> None:
        """Called when the route has looked itself where the database stands."""
        self._last = {}
        self.has_gone_back = False

    def note(self, store: StateStore, *names: str) -> None:
        """Remember where the database stands."""
        self._last = _positions(store, names)


def _positions(store: StateStore, names: Collection[str]) -> Positions:
    return {(name, partition): at for name in names for partition, at in store.positions(name).items()}
