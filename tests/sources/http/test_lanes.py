"""Who is worked on where, and in which order."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import pytest

from penstock.sources.http.access.endpoints import Shape
from penstock.sources.http.body.lanes import SWITCH_SECONDS, Lane
from penstock.sources.http.body.pace import Pace, pace
from penstock.sources.http.responses import Refused


def sharing(shared: bytes, listed: bytes, count: int) -> bytes:
    """A body whose events have 30 KB in common."""
    return b'{"%b":{"a":"%b"},"%b":[%b]}' % (shared, b"x" * 30_000, listed, b",".join([b"{}"] * count))


@pytest.mark.parametrize(
    ("shape", "body", "form", "expected"),
    [
        (Shape.EVENTS, b'{"a":1}', False, Pace.AT_ONCE),
        (Shape.EVENTS, b"[" + b"{}," * 200 + b"{}]", False, Pace.AT_ONCE),
        (Shape.EVENTS, b"[" + b"{}," * 20_000 + b"{}]", False, Pace.SOON),
        (Shape.EVENTS, b'{"a":"' + b"x" * 70_000 + b'"}', False, Pace.ALONE),
        (Shape.EVENTS, sharing(b"template", b"events", 2), False, Pace.AT_ONCE),
        (Shape.EVENTS, sharing(b"template", b"events", 100), False, Pace.SOON),
        (Shape.EVENTS, sharing(b"template", b"events", 1000), False, Pace.ALONE),
        (Shape.BATCH, sharing(b"context", b"batch", 1000), False, Pace.ALONE),
        (Shape.LINES, b"x\n" * 1000, False, Pace.SOON),
        (Shape.LINES, b"{}\n" * 100, False, Pace.AT_ONCE),
        (Shape.LINES, b"{}\n" * 100, True, Pace.SOON),
    ],
)
def test_what_takes_long_does_not_stay_on_the_event_loop(shape: Shape, body: bytes, form: bool, expected: Pace) -> None:
    assert pace(shape, body, form) is expected


def test_who_sends_much_waits_for_it_and_not_his_neighbours() -> None:
    done: list[str] = []

    async def send(lane: Lane, sender: str, name: str) -> None:
        async with lane.turn(sender):
            await lane.run(lambda: time.sleep(0.01))
            done.append(name)

    async def all_of_them() -> None:
        lane = Lane("test", 30)
        tasks = [asyncio.create_task(send(lane, "greedy", f"g{number}")) for number in range(5)]
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(send(lane, "other", f"o{number}")) for number in range(2)]
        await asyncio.gather(*tasks)

    asyncio.run(all_of_them())
    assert done[0] == "g0"
    assert done.index("o0") <= 2
    assert done.index("o1") <= 4
    assert len(done) == 7


def test_one_body_is_worked_on_at_a_time_and_nobody_waits_for_ever() -> None:
    at_work, most = 0, 0
    lock = threading.Lock()

    def work() -> float:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        time.sleep(0.05)
        with lock:
            at_work -= 1
        return sys.getswitchinterval()

    async def send(lane: Lane) -> float | str:
        try:
            async with lane.turn("sender"):
                return await lane.run(work)
        except Refused as refused:
            return str(refused.answer.status)

    async def all_of_them() -> list[float | str]:
        lane = Lane("test", 0.12)
        found = await asyncio.gather(*(send(lane) for _ in range(8)))
        return [*found, await send(lane)]  # whoever gave up has not taken a turn with him

    found = asyncio.run(all_of_them())
    assert most == 1
    assert "503" in found
    assert found[-1] == pytest.approx(SWITCH_SECONDS)
    assert sys.getswitchinterval() > SWITCH_SECONDS
