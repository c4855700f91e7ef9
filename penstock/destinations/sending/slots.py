"""How many requests may be in flight at a time: a fixed number, or one that follows the latency of their answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.sessions.adaptive_limit import AdaptiveLimit


class Slots:
    """Given in the order in which they were asked for. Used in one event loop."""

    def __init__(self, limit: AdaptiveLimit) -> None:
        self._limit = limit
        self._taken = 0
        self._queue: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """A slot, as soon as there is one."""
        if self._queue or self._taken >= self._limit.value:
            mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.append(mine)
            try:
                await mine
            except asyncio.CancelledError:
                if mine.done() and not mine.cancelled():
                    self._give_back()
                else:
                    self._queue.remove(mine)
                raise
        else:
            self._taken += 1
        try:
            yield
        finally:
            self._give_back()

    def observe(self, seconds: float, is_good: bool) -> None:
        """Note how long an answer took, and whether it was one that a server gives that keeps up."""
        self._limit.observe(seconds, is_good, self._taken)
        self._hand_out()

    def _give_back(self) -> None:
        self._taken -= 1
        self._hand_out()

    def _hand_out(self) -> None:
        while self._queue and self._taken < self._limit.value:
            waiter = self._queue.popleft()
            if not waiter.done():
                self._taken += 1
                waiter.set_result(None)
