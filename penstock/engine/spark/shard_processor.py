"""Decides for one shard, with what it remembers, inside Spark's state store.

The store keeps a few large values per shard: the blobs of the step's state, numbered, each with a token. What was built
from them is remembered elsewhere (``shard_home.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessor, StatefulProcessorHandle

from penstock.engine.route_plan import RoutePlan
from penstock.engine.stateful.shard_home import memory_of
from penstock.engine.stateful.shard_memory import Answer, Extent, Request

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import TimerValues

DECIDED = "task int, report string, items binary"
"""What a shard yields: its report, and what it releases, each for one of the tasks that follow."""


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
        shard, items = int(key[0]), [row["items"] for row in rows]
        with memory_of(self._plan, shard) as memory:
            stored = self._stored()
            known = memory.extent
            anew = known is None or not self._is_right(known, stored)
            start = stored.first if known is None or anew else known.following
            missing = [_value(self._blobs, number) for number in range(start, stored.following)]
            answer = memory.answer(Request(stored, anew, missing, items))
            self._store(stored, answer)
        yield Row(task=shard, report=answer.report, items=None)
        for task, released in answer.released:
            yield Row(task=task, report=None, items=released)

    def close(self) -> None:
        pass

    def _stored(self) -> Extent:
        first, following, token = self._range.get() or Extent()
        return Extent(first, following, bytes(token))

    def _is_right(self, known: Extent, stored: Extent) -> bool:
        """Whether the store has all blobs that are remembered, or other blobs in place of the oldest."""
        if known.following == stored.following:
            return known.token == stored.token
        if not stored.first < known.following < stored.following:
            return False
        return _value(self._tokens, known.following - 1) == known.token

    def _store(self, stored: Extent, answer: Answer) -> None:
        if not answer.append:
            return
        first, following = stored.first + answer.drop, stored.following
        for number in range(stored.first, first):
            self._blobs.removeKey((number,))
            self._tokens.removeKey((number,))
        for blob, token in answer.append:
            self._blobs.updateValue((following,), (blob,))
            self._tokens.updateValue((following,), (token,))
            following += 1
        self._range.update((first, following, answer.append[-1][1]))


def _value(state: MapState, number: int) -> bytes:
    found = state.getValue((number,))
    assert found is not None
    return bytes(found[0])
