"""How many bytes of requests may be in memory at a time, built and not answered yet."""

from __future__ import annotations

import asyncio


class ByteBudget:
    """What is built is not known before it is there, so the last that fits may go beyond the limit. Used in one event
    loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        self._room = asyncio.Event()
        self._room.set()

    @property
    def has_room(self) -> bool:
        return self._room.is_set()

    async def wait_for_room(self) -> None:
        await self._room.wait()

    def take(self, size: int) -> None:
        self._taken += size
        if self._taken >= self._most:
            self._room.clear()

    def give_back(self, size: int) -> None:
        self._taken -= size
        if self._taken < self._most:
            self._room.set()
