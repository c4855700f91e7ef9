"""What a shard decides on a batch, and how it says so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from penstock.engine.stateful.shards import BYPASS, COMMAND, CONTROL, RELEASE, TICK
from penstock.holding.decision import Decision
from penstock.holding.item import ITEM, Items
from penstock.steps.contract import HoldingState


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
    def of(cls, d: Decision) -> ShardReport:
        holds = list(d.holds.items())
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
            dict(d.levels),
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ShardReport:
        return cls(**json.loads(text))


def decide(state: HoldingState, items: Items) -> Decision:
    """The decision on what a shard was given: the state has no say in what bypasses it."""
    bits = items["bits"]
    ticks, releases = items["time"][(bits & TICK) != 0].tolist(), items["order"][(bits & RELEASE) != 0].tolist()
    decision = state.decide(items[(bits & (CONTROL | BYPASS)) == 0], ticks, releases, items[(bits & COMMAND) != 0])
    passing = _as_released(items[(bits & BYPASS) != 0], decision.released.dtype)
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
