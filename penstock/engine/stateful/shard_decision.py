"""What a shard decides on a batch, and how it says so."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from penstock.engine.stateful.shards import BYPASS, COMMAND, CONTROL, RELEASE, TICK
from penstock.holding.decision import HIGHEST, Decision
from penstock.holding.item import ITEM, Items
from penstock.steps.contract import HoldingState

SHARD_LAG = f"shard_lag_us{HIGHEST}"


@dataclass(frozen=True)
class ShardReport:
    """What a shard has decided on a batch."""

    passed: int
    let_go: int
    held: int
    skipped: int
    waiting: int
    holds: list[tuple[int, int]]
    """Partitions, each with the lowest offset that waits."""
    dropped: int = 0
    made: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    levels: Mapping[str, int] = field(default_factory=dict)

    @property
    def given(self) -> int:
        return self.passed + self.held + self.skipped

    @classmethod
    def of(cls, d: Decision, lag: int | None = None) -> ShardReport:
        """``lag``: how long ago (µs) the newest came that was decided on, if there was something."""
        holds = list(d.holds.items())
        levels = d.levels if lag is None else {**d.levels, SHARD_LAG: lag}
        return cls(
            d.passed,
            d.let_go,
            d.held,
            d.skipped,
            d.waiting,
            holds,
            d.dropped,
            d.made,
            dict(d.reasons),
            dict(d.counts),
            dict(levels),
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ShardReport:
        return cls(**json.loads(text))


def lag_of(items: Items) -> int | None:
    """How long ago (µs) the newest of a shard's records came; ``None`` without any. By this machine's clock, so it is
    for people alone."""
    times = items["time"][(items["bits"] & CONTROL) == 0]
    return max(0, time.time_ns() // 1000 - int(times.max())) if len(times) else None


def decide(state: HoldingState, items: Items) -> Decision:
    """The decision on what a shard was given: the state has no say in what bypasses it."""
    bits = items["bits"]
    ticks, releases = items["time"][(bits & TICK) != 0].tolist(), items["order"][(bits & RELEASE) != 0].tolist()
    special = (bits & (CONTROL | BYPASS)) != 0
    if not special.any():
        return state.decide(items, (), ())
    decision = state.decide(items.compress(~special), ticks, releases, items.compress((bits & COMMAND) != 0))
    passing = _as_released(items.compress((bits & BYPASS) != 0), decision.released.dtype)
    if len(passing) == 0:
        return decision
    released = np.concatenate([decision.released, passing])
    return replace(decision, released=released, passed=decision.passed + len(passing))


def _as_released(items: Items, kind: np.dtype[np.void]) -> Items:
    """Items with the columns that released ones have; those that they lack are 0."""
    if items.dtype == kind:
        return items
    released = np.zeros(len(items), kind)
    for name in ITEM.names or ():
        released[name] = items[name]
    return released
