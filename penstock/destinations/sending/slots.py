"""How many requests may be in flight at a time: a fixed number, or one that follows the latency of their answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from penstock.sessions.adaptive_limit import AdaptiveLimit


class Slots:
    """Given in the order in which they were asked for. Used in one event loop."""

    def __init__(self, limit: AdaptiveLimit, elsewhere: Callable[[], int] = lambda: 0) -> None:
        """``elsewhere``: how many requests are in flight that have no slot of these."""
        self._limit = limit
        self._elsewhere = elsewhere
        self._taken = 0
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def are_there(self) -> bool:
        """Whether there are any, taken or not: not all requests that may be in flight are so elsewhere."""
        return self._limit.value > self._elsewhere()

    @property
    def _is_free(self) -> bool:
        return self._taken < self._limit.value - self._elsewhere()

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """A slot, as soon as there is one."""
        if self._queue or not self._is_free:
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

    def look_again(self) -> None:
        """Hand out what has become free elsewhere."""
        self._hand_out()

    def _give_back(self) -> None:
        self._taken -= 1
        self._hand_out()

    def _hand_out(self) -> None:
        while self._queue and self._is_free:
            waiter = self._queue.popleft()
            if not waiter.done():
                self._taken += 1
                waiter.set_result(None)
