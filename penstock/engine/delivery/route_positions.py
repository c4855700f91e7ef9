"""The position of a route in each partition that it reads, and where that partition ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.engine.ledger import Position
from penstock.engine.pipeline import Pipeline


@dataclass(frozen=True)
class RoutePosition:
    route: str
    partition: int
    source: str
    committed: int
    """The next offset to read."""
    hold: int
    """The lowest offset that is kept for what still waits."""
    oldest: int
    end: int
    held_bytes: int = 0
    """About how many bytes of the log, as records have them in memory, are kept for what waits."""

    @property
    def lag(self) -> int:
        """How many offsets the log holds that the route has not committed."""
        return max(0, self.end - max(self.committed, self.oldest))


def positions(pipeline: Pipeline, route: str) -> list[RoutePosition]:
    """One per partition. A partition that the route has not opened yet is read from its oldest record on."""
    return positions_at(pipeline, route, pipeline.ledger.offsets(route))


def positions_at(pipeline: Pipeline, route: str, known: Mapping[int, Position]) -> list[RoutePosition]:
    """The same, for a route whose positions are ``known``."""
    found = []
    for partition, owner in sorted(pipeline.partitions_of(route).items()):
        bounds = pipeline.log.bounds(partition)
        position = known.get(partition)
        committed, hold = (position.committed, position.hold) if position else (bounds.oldest, bounds.oldest)
        held = pipeline.log.reader(partition).measure(hold, committed)[1] if hold < committed else 0
        found.append(RoutePosition(route, partition, owner.source, committed, hold, bounds.oldest, bounds.end, held))
    return found
