"""What a process remembers of one shard: the state of the step, and which of the stored blobs are in it.

The store has the blobs of a shard, numbered, each with a token. If it has the token of the last blob that is
remembered, what is remembered is right so far: at most a few blobs are missing. If not, because a task failed or all
was written anew, the state is built again from all blobs.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.engine.route_plan import RoutePlan
from penstock.engine.stateful.shard_decision import ShardReport, decide, lag_of
from penstock.engine.stateful.shards import CONTROL, shard_at, slices
from penstock.holding.decision import StateChange
from penstock.holding.packed_rows import pack_rows, unpack_rows
from penstock.steps.contract import HoldingState


class Extent(NamedTuple):
    """Blobs of a shard: the number of the first one, the number behind the last, and the token of the last."""

    first: int = 0
    following: int = 0
    token: bytes = b""


@dataclass(frozen=True)
class Request:
    """What came for a shard, and what its memory lacks."""

    stored: Extent
    """What the store has."""
    anew: bool
    """Whether what is remembered is wrong: then ``blobs`` are all that are stored."""
    blobs: Sequence[bytes]
    items: Sequence[bytes]
    """Packed."""


@dataclass(frozen=True)
class Answer:
    report: str
    released: Sequence[tuple[int, bytes]]
    """For each task that is to release some, its number and the packed items."""
    drop: int
    """How many of the oldest blobs are to be removed from the store."""
    append: Sequence[tuple[bytes, bytes]]
    """Blobs to be stored, each with its token."""


class ShardMemory:
    """Used by one thread at a time."""

    def __init__(self, plan: RoutePlan, shard: int) -> None:
        self._plan = plan
        self._shard = shard
        self._state: HoldingState | None = None
        self._extent = Extent()

    @property
    def extent(self) -> Extent | None:
        """What is remembered; ``None`` if nothing is."""
        return None if self._state is None else self._extent

    def answer(self, request: Request) -> Answer:
        """Decide. What the answer says must be stored before the next request, or that one must say otherwise."""
        plan, stored = self._plan, request.stored
        assert plan.holding is not None
        # Forgotten until the end: what fails has changed it.
        state, self._state = self._state, None
        first = self._extent.first
        if state is None or request.anew:
            state, first = plan.holding_step().new_state(shard_at(self._shard, plan.key_secret)), stored.first
        for blob in request.blobs:
            state.apply(blob)
        state.drop(stored.first - first)
        items = unpack_rows(request.items, plan.holding_step().item_type)
        decision = decide(state, items)
        decision.check(plan.holding.label, int(np.count_nonzero((items["bits"] & CONTROL) == 0)))
        append = [(blob, uuid.uuid4().bytes) for blob in decision.change.append]
        self._state, self._extent = state, _after(stored, decision.change, append)
        released = [(task, pack_rows(rows)) for task, rows in slices(decision.released)]
        return Answer(ShardReport.of(decision, lag_of(items)).to_json(), released, decision.change.drop, append)


def _after(stored: Extent, change: StateChange, append: Sequence[tuple[bytes, bytes]]) -> Extent:
    if not append:
        return stored
    return Extent(stored.first + change.drop, stored.following + len(append), append[-1][1])
