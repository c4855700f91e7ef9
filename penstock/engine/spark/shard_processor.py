"""Decides for one shard, with what it remembers, inside Spark's state store.

The store keeps a few large values per shard: the blobs of the step's state, numbered, and a token that names their sum.
A worker process keeps the state of the shards that it had, and uses it as long as the token is the one in the store: so
state is read again only where a task has moved, failed or was replayed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from penstock.engine.route_plan import RoutePlan
from penstock.engine.stateful.shard_decision import ShardReport, decide
from penstock.engine.stateful.shards import TICK, slices, unpack
from penstock.steps.contract import HoldingState

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import TimerValues

DECIDED = "task int, report string, items binary"
"""What a shard yields: its report, and what it releases, each for one of the tasks that follow."""

_states: dict[tuple[str, int], tuple[bytes, HoldingState]] = {}
"""By route and shard, the token of the state that this process has, and the state."""


class ShardProcessor(StatefulProcessor):
    def __init__(self, plan: RoutePlan) -> None:
        self._plan = plan

    def init(self, handle: StatefulProcessorHandle) -> None:
        assert self._plan.holding is not None
        # Another step does not understand the blobs of this one.
        name = self._plan.holding.name
        self._about = handle.getValueState(f"{name}_about", "token binary, first long, next long")
        self._blobs = handle.getMapState(f"{name}_blobs", "number long", "blob binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:  # noqa: N803
        assert self._plan.holding is not None
        shard = int(key[0])
        items = unpack(row["items"] for row in rows)
        token, first, following = self._about.get() or (b"", 0, 0)
        # Taken out: a task that fails has changed it in memory only.
        known, state = _states.pop((self._plan.name, shard), (None, None))
        if state is None or known != bytes(token):
            state = self._plan.holding_step().restore(map(self._blob, range(first, following)))
        decision = decide(state, items)
        decision.check(self._plan.holding.label, int(np.count_nonzero((items["bits"] & TICK) == 0)))
        change = decision.change
        token = bytes(token)
        if change.append or change.drop:
            for number in range(first, first + change.drop):
                self._blobs.removeKey((number,))
            for number, blob in enumerate(change.append, following):
                self._blobs.updateValue((number,), (blob,))
            token = uuid.uuid4().bytes
            self._about.update((token, first + change.drop, following + len(change.append)))
        _states[self._plan.name, shard] = token, state
        yield Row(task=shard, report=ShardReport.of(decision).to_json(), items=None)
        for task, released in slices(decision.released):
            yield Row(task=task, report=None, items=released.tobytes())

    def close(self) -> None:
        pass

    def _blob(self, number: int) -> bytes:
        found = self._blobs.getValue((number,))
        assert found is not None
        return bytes(found[0])
