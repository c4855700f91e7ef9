"""Lanes for work that is too long for the event loop: a thread does it, one body at a time, senders in turn.

A body of many events takes a worker up to about a second. On the event loop, everybody would wait for it; in many
threads at once, each body would need its memory at the same time. A lane has one thread. Its turns go round: each
sender that waits gets one before any gets a second.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from threading import Lock
from typing import TypeVar

from penstock.sources.http import responses
from penstock.sources.http.responses import Refused

_Result = TypeVar("_Result")


SWITCH_SECONDS = 0.0005
"""How long such a thread may keep the other threads of the process from running."""


class Lane:
    """Use it on the event loop's thread only; ``run`` executes work in the lane's own thread."""

    def __init__(self, name: str, longest_wait: float) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._longest_wait = longest_wait
        self._busy = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, sender: str) -> AsyncIterator[None]:
        """Wait for a turn, not too long (else ``Refused``); the next turn begins at the end of the block."""
        if self._busy:
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(sender, deque()).append(place)
            try:
                async with asyncio.timeout(self._longest_wait):
                    await place
            except BaseException as error:
                if place.done() and not place.cancelled():
                    self._start_next()  # it came at the very moment of giving up
                if isinstance(error, TimeoutError):
                    raise Refused(responses.OVERLOADED) from None
                raise
        self._busy = True
        try:
            yield
        finally:
            self._start_next()

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Run ``work`` and return its result. Only inside a turn."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, _run_switching_often, work)

    def _start_next(self) -> None:
        """Give the turn to the sender whose last turn is longest ago; one with more work goes to the end."""
        while self._waiting:
            sender, places = next(iter(self._waiting.items()))
            del self._waiting[sender]
            place = places.popleft()
            if places:
                self._waiting[sender] = places
            if not place.done():
                place.set_result(None)
                return
        self._busy = False


class _FrequentSwitching:
    """Makes Python switch threads more often while any lane works. Doing so always would slow down everything."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._at_work = 0
        self._usual = sys.getswitchinterval()

    def __enter__(self) -> None:
        with self._lock:
            self._at_work += 1
            sys.setswitchinterval(SWITCH_SECONDS)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._at_work -= 1
            if not self._at_work:
                sys.setswitchinterval(self._usual)


_consideration = _FrequentSwitching()


def _run_switching_often(work: Callable[[], _Result]) -> _Result:
    with _consideration:
        return work()
