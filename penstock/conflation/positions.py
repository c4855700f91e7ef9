"""How far each partition of the log is processed, while bundles of it are written in any order.

The position of a partition is the lowest offset that is not processed yet; what waits is not. If there is none, it is
where the partition stands once all is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.conflation.bundle import Place


class Positions:
    """Used by one thread at a time."""

    def __init__(self, settled_upto: Mapping[int, int], unprocessed: Iterable[Place]) -> None:
        """``settled_upto``: where partitions stand once all of ``unprocessed`` is processed."""
        self._settled_upto = dict(settled_upto)
        left: dict[int, set[int]] = {}
        for place in unprocessed:
            left.setdefault(place.partition, set()).add(place.offset)
        self._order = {partition: sorted(offsets, reverse=True) for partition, offsets in left.items()}
        self._left = left

    def note_processed(self, places: Iterable[Place]) -> None:
        for place in places:
            self._left.get(place.partition, set()).discard(place.offset)

    def after(self, places: Iterable[Place]) -> dict[int, int]:
        """The positions if these were processed, too."""
        extra = set(places)
        return {partition: self._position(partition, extra) for partition in self._settled_upto}

    def _position(self, partition: int, extra: set[Place]) -> int:
        left, order = self._left.get(partition, set()), self._order.get(partition, [])
        # What is done for good is never looked at again.
        while order and order[-1] not in left:
            order.pop()
        skipped = {place.offset for place in extra if place.partition == partition}
        lowest = next((offset for offset in reversed(order) if offset in left and offset not in skipped), None)
        upto = self._settled_upto[partition]
        return upto if lowest is None else min(upto, lowest)
