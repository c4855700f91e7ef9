"""What a shard decides on a batch, and how it says so."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

import numpy as np

from penstock.engine.stateful.shards import BYPASS, CONTROL, RELEASE, TICK
from penstock.holding.decision import Decision
from penstock.holding.item import Items
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

    @property
    def given(self) -> int:
        return self.passed + self.held + self.skipped

    @classmethod
    def of(cls, d: Decision) -> ShardReport:
        return cls(d.passed, d.let_go, d.held, d.skipped, d.waiting, list(d.holds.items()))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ShardReport:
        return cls(**json.loads(text))


def decide(state: HoldingState, items: Items) -> Decision:
    """The decision on what a shard was given: the state has no say in what bypasses it."""
    bits = items["bits"]
    ticks, releases = items["time"][(bits & TICK) != 0].tolist(), items["order"][(bits & RELEASE) != 0].tolist()
    decision = state.decide(items[(bits & (CONTROL | BYPASS)) == 0], ticks, releases)
    passing = items[(bits & BYPASS) != 0]
    if len(passing) == 0:
        return decision
    released = np.concatenate([decision.released, passing])
    return replace(decision, released=released, passed=decision.passed + len(passing))
