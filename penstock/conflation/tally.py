"""What is counted of the bundles of one source and kind, as numbers with names that add up.

Delays are counted in steps, each longer than the one before by a fifth: what is told of them is at most so much too
long, however many there were.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

RECEIVED = "received"
CONFLATED = "conflated"
WRITTEN = "written"
FAILED = "failed"
COMPARED = "rows_compared"
INSERTED = "rows_inserted"
UPDATED = "rows_updated"
DELETED = "rows_deleted"
_DELAY = "delay_"

_STEPS_PER_DOUBLING = 4
_LEAST = 0.001
"""Seconds: a shorter delay is told as this."""


def delay_name(seconds: float) -> str:
    """The name under which a delay counts."""
    step = math.ceil(math.log2(max(seconds, _LEAST) / _LEAST) * _STEPS_PER_DOUBLING)
    return f"{_DELAY}{step}"


def longest_of(step: int) -> float:
    """The longest delay of a step, in seconds."""
    seconds: float = _LEAST * 2 ** (step / _STEPS_PER_DOUBLING)
    return seconds


@dataclass(frozen=True)
class Tally:
    counts: Mapping[str, int] = field(default_factory=dict)
    delays: Mapping[int, int] = field(default_factory=dict)
    """From receipt to database: how many of each step."""

    @classmethod
    def of(cls, named: Mapping[str, int]) -> Self:
        delays = {int(name.removeprefix(_DELAY)): n for name, n in named.items() if name.startswith(_DELAY)}
        return cls({name: n for name, n in named.items() if not name.startswith(_DELAY)}, delays)

    @classmethod
    def sum(cls, tallies: Iterable[Self]) -> Self:
        counts, delays = Counter[str](), Counter[int]()
        for tally in tallies:
            counts.update(tally.counts)
            delays.update(tally.delays)
        return cls(counts, delays)

    def __getitem__(self, name: str) -> int:
        return self.counts.get(name, 0)

    def delay(self, share: float) -> float | None:
        """The delay that this share of bundles did not exceed: 0.5 for the median, 1 for the longest."""
        wanted, seen = share * sum(self.delays.values()), 0
        for step in sorted(self.delays):
            seen += self.delays[step]
            if seen >= wanted:
                return longest_of(step)
        return None
