"""Decides for one shard, with what it remembers, inside Spark's state store.

The store keeps a few large values per shard: the blobs of the step's state, numbered, each with a token, and which
numbers there are. What was built from them is remembered elsewhere (``shard_home.py``).

All of it is one variable of Spark's: Spark sets up each of them anew for every shard in every batch, which takes
longer than to read and to write what is in it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from penstock.engine.route_plan import RoutePlan
from penstock.engine.stateful.shard_home import memory_of
from penstock.engine.stateful.shard_memory import Answer, Extent, Request

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import TimerValues

_EXTENT = -1
"""In place of a blob's number: under it stand the numbers of the first blob and behind the last one, with the token of
the last."""
_NUMBERS = struct.Struct("<qq")

DECIDED = "task int, report string, items binary"
"""What a shard yields: its report, and what it releases, each for one of the tasks that follow."""


class ShardProcessor(StatefulProcessor):
    def __init__(self, plan: RoutePlan) -> None:
        self._plan = plan

    def init(self, handle: StatefulProcessorHandle) -> None:
        # Another step, or another release, does not understand the blobs of this one.
        name = f"{self._plan.state_name}_blobs"
        self._blobs = handle.getMapState(name, "number long", "blob binary, token binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:  # noqa: N803
        shard, items = int(key[0]), [row["items"] for row in rows]
        with memory_of(self._plan, shard) as memory:
            stored = self._stored()
            known = memory.extent
            anew = known is None or not self._is_right(known, stored)
            start = stored.first if known is None or anew else known.following
            missing = [self._blob(number)[0] for number in range(start, stored.following)]
            answer = memory.answer(Request(stored, anew, missing, items))
            self._store(stored, answer)
        yield Row(task=shard, report=answer.report, items=None)
        for task, released in answer.released:
            yield Row(task=task, report=None, items=released)

    def close(self) -> None:
        pass

    def _stored(self) -> Extent:
        found = self._blobs.getValue((_EXTENT,))
        if found is None:
            return Extent()
        first, following = _NUMBERS.unpack(found[0])
        return Extent(first, following, bytes(found[1]))

    def _is_right(self, known: Extent, stored: Extent) -> bool:
        """Whether the store has all blobs that are remembered, or other blobs in place of the oldest."""
        if known.following == stored.following:
            return known.token == stored.token
        if not stored.first < known.following < stored.following:
            return False
        return self._blob(known.following - 1)[1] == known.token

    def _store(self, stored: Extent, answer: Answer) -> None:
        if not answer.append:
            return
        first, following = stored.first + answer.drop, stored.following
        for number in range(stored.first, first):
            self._blobs.removeKey((number,))
        for number, blob in enumerate(answer.append, following):
            self._blobs.updateValue((number,), blob)
        numbers = _NUMBERS.pack(first, following + len(answer.append))
        self._blobs.updateValue((_EXTENT,), (numbers, answer.append[-1][1]))

    def _blob(self, number: int) -> tuple[bytes, bytes]:
        """A blob that is there, and its token."""
        found = self._blobs.getValue((number,))
        assert found is not None
        return bytes(found[0]), bytes(found[1])
