"""How much a sampler may keep, and how it makes do with less when memory gets short."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class SamplerLimits:
    """Over the whole route; every shard has its part."""

    primary: int
    """Traces that wait."""
    secondary: int | None
    """Traces that wait and are low; ``None``: these wait with the others."""
    sampled: int
    """Decisions that are remembered."""
    not_sampled: int
    waiting_bytes: int | None = None
    """Bytes of waiting spans that are aimed at; ``None``: any."""
    spans_per_trace: int | None = None
    """A trace of which more would wait is not sampled; ``None``: any."""
    bytes_per_trace: int | None = None

    def split(self, shards: int) -> SamplerLimits:
        """The part of one shard, rounded up. What is per trace stays."""
        return SamplerLimits(
            primary=math.ceil(self.primary / shards),
            secondary=None if self.secondary is None else math.ceil(self.secondary / shards),
            sampled=math.ceil(self.sampled / shards),
            not_sampled=math.ceil(self.not_sampled / shards),
            waiting_bytes=None if self.waiting_bytes is None else math.ceil(self.waiting_bytes / shards),
            spans_per_trace=self.spans_per_trace,
            bytes_per_trace=self.bytes_per_trace,
        )


def regulate(limit: int, most: int, usage: int, target: int) -> int:
    """How many traces may wait from now on, if so many may now, at most so many ever may, and their spans have
    ``usage`` bytes of the ``target``. It never goes below a quarter of the most."""
    least = math.ceil(most / 4)
    pressure = usage / target
    if pressure > 1.3:
        return least
    if pressure > 1.15:
        return max(least, int(limit / pressure**2))
    if pressure > 1.0:
        return max(least, int(limit / pressure))
    if pressure < 0.85:
        return min(most, limit + max(1, limit // 50))
    return limit
