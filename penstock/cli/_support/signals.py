"""Ctrl-C and SIGTERM as events, for as long as a verb runs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType


@contextmanager
def handle_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` on every SIGINT and SIGTERM; afterwards signals do what they did before."""

    def handle(_: int, __: FrameType | None) -> None:
        stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stop_in_two_steps(drain: float) -> Iterator[tuple[Event, Event]]:
    """Events for the first signal (finish what is there) and for the second (stop now)."""
    stopping, hurry = Event(), Event()

    def stop() -> None:
        if stopping.is_set():
            hurry.set()
            message = "stopping now\n"
        else:
            stopping.set()
            message = f"draining, up to {drain:g} s; press Ctrl-C again to stop now\n"
        # A signal may come in the middle of a buffered write; the descriptor itself is always safe.
        os.write(sys.stderr.fileno(), message.encode())

    with handle_signals(stop):
        yield stopping, hurry
