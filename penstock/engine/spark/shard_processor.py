"""Decides for one shard, with what it remembers, inside Spark's state store.

The store keeps a few large values per shard: the blobs of the step's state, numbered, each with a token. A worker
process keeps the state of every shard that it had, and the token of the last blob in it. If the store has that token,
the state is right so far: at most a few blobs are missing, of batches that another process had. If not, because a task
failed or all was written anew, it is built again from all blobs.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessor, StatefulProcessorHandle

from penstock.engine.route_plan import RoutePlan
from penstock.engine.stateful.shard_decision import ShardReport, decide
from penstock.engine.stateful.shards import CONTROL, shard_at, slices, unpack
from penstock.holding.decision import StateChange
from penstock.steps.contract import HoldingState

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import TimerValues

DECIDED = "task int, report string, items binary"
"""What a shard yields: its report, and what it releases, each for one of the tasks that follow."""


@dataclass(frozen=True)
class _Known:
    """A state, and how far it goes: the first blob that the store had, the number of the next one, and the token of the
    last."""

    state: HoldingState
    first: int = 0
    following: int = 0
    token: bytes = b""


_states: dict[tuple[str, int], _Known] = {}
"""What this process knows, by route and shard."""


class ShardProcessor(StatefulProcessor):
    def __init__(self, plan: RoutePlan) -> None:
        self._plan = plan

    def init(self, handle: StatefulProcessorHandle) -> None:
        # Another step, or another release, does not understand the blobs of this one.
        name = self._plan.state_name
        self._range = handle.getValueState(f"{name}_range", "first long, following long, token binary")
        self._blobs = handle.getMapState(f"{name}_blobs", "number long", "blob binary")
        self._tokens = handle.getMapState(f"{name}_tokens", "number long", "token binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:  # noqa: N803
        assert self._plan.holding is not None
        shard = int(key[0])
        items = unpack((row["items"] for row in rows), self._plan.holding_step().item_type)
        # Taken out: a task that fails has changed it in memory only.
        known = self._up_to_date(_states.pop((self._plan.name, shard), None), shard)
        decision = decide(known.state, items)
        decision.check(self._plan.holding.label, int(np.count_nonzero((items["bits"] & CONTROL) == 0)))
        _states[self._plan.name, shard] = self._store(known, decision.change)
        yield Row(task=shard, report=ShardReport.of(decision).to_json(), items=None)
        for task, released in slices(decision.released):
            yield Row(task=task, report=None, items=released.tobytes())

    def close(self) -> None:
        pass

    def _up_to_date(self, known: _Known | None, shard: int) -> _Known:
        """The state of the store, from what is known of it if that is of any use."""
        first, following, last = self._range.get() or (0, 0, b"")
        if known is None or not self._is_right(known, first, following, bytes(last)):
            known = _Known(self._plan.holding_step().new_state(shard_at(shard, self._plan.key_secret)), first, first)
        for number in range(known.following, following):
            known.state.apply(_value(self._blobs, number))
        known.state.drop(first - known.first)
        return _Known(known.state, first, following, bytes(last))

    def _is_right(self, known: _Known, first: int, following: int, last: bytes) -> bool:
        """Whether the store has all blobs that the state was built from, or other blobs in place of the oldest."""
        if known.following == following:
            return known.token == last
        return first < known.following < following and _value(self._tokens, known.following - 1) == known.token

    def _store(self, known: _Known, change: StateChange) -> _Known:
        if not change.append:
            return known
        token = b""
        first, following = known.first + change.drop, known.following
        for number in range(known.first, first):
            self._blobs.removeKey((number,))
            self._tokens.removeKey((number,))
        for blob in change.append:
            token = uuid.uuid4().bytes
            self._blobs.updateValue((following,), (blob,))
            self._tokens.updateValue((following,), (token,))
            following += 1
        self._range.update((first, following, token))
        return _Known(known.state, first, following, token)


def _value(state: MapState, number: int) -> bytes:
    found = state.getValue((number,))
    assert found is not None
    return bytes(found[0])
