"""What the chunks of a body cost, beside what is in them."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass

import pytest

from penstock.sources.http.access.auth_tokens import Headers
from penstock.sources.http.body.body_reader import CHUNKS_AT_ONCE, BodyReader
from penstock.sources.http.config import LimitsConfig
from penstock.sources.http.metrics import Tally


class Chunked(Headers):
    def get(self, key: str, /) -> str | None:
        return "chunked" if key == "transfer-encoding" else None

    def get_all(self, key: str, /) -> list[str]:
        return []


@dataclass(frozen=True)
class Chunks:
    """A body that is there already, in chunks of one size: reading it never has to wait."""

    count: int
    size: int

    def __call__(self) -> Awaitable[bytes]:
        raise NotImplementedError

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for number in range(self.count):
            yield bytes([number % 256]) * self.size


async def turns_of_others(body: Chunks) -> int:
    """How often others had a turn while the body was read."""
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(take_turns())
    read = await BodyReader(LimitsConfig(), Tally()).read(Chunked(), body, "client")
    others.cancel()
    assert len(read) == body.count * body.size
    return turns


@pytest.mark.parametrize("size", [1, 2, 60])
def test_others_have_their_turns_while_tiny_chunks_are_read(size: int) -> None:
    assert asyncio.run(turns_of_others(Chunks(10 * CHUNKS_AT_ONCE, size))) >= 10


@pytest.mark.parametrize(("count", "size"), [(CHUNKS_AT_ONCE - 1, 1), (10 * CHUNKS_AT_ONCE, 64), (1000, 8192)])
def test_other_bodies_are_read_without_a_pause(count: int, size: int) -> None:
    assert asyncio.run(turns_of_others(Chunks(count, size))) == 0


def test_tiny_chunks_need_no_more_memory_than_is_charged_for_them() -> None:
    body = Chunks(200 * CHUNKS_AT_ONCE, 2)
    reader = BodyReader(LimitsConfig(), Tally())

    async def read() -> int:
        await reader.read(Chunked(), Chunks(1, 1), "client")
        tracemalloc.start()
        try:
            await reader.read(Chunked(), body, "client")
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert asyncio.run(read()) < 8 * body.count * body.size


def test_a_known_sender_does_not_wait_for_the_pauses_of_unknown_ones() -> None:
    async def first_of_them() -> str:
        reader = BodyReader(LimitsConfig(), Tally())
        unknown = [asyncio.create_task(reader.pause(known=False), name="unknown") for _ in range(50)]
        await asyncio.sleep(0)
        known = asyncio.create_task(reader.pause(known=True), name="known")
        await known
        return "known" if not all(task.done() for task in unknown) else "unknown"

    assert asyncio.run(first_of_them()) == "known"
