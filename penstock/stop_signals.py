"""Calls a function on SIGTERM and SIGINT, in a thread of its own, where it may take locks.

Python runs a signal handler inside the main thread, between any two of its steps. A handler that sets an ``Event``
which the main thread is just about to wait for would wait for the main thread, and that one for the handler: the
process would never stop.
"""

from __future__ import annotations

import _thread
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def call_on_stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` for every SIGINT and SIGTERM, one call at a time; afterwards signals do what they did before."""
    turn = Lock()

    def take_turn() -> None:
        with turn:
            stop()

    def handle(_: int, __: FrameType | None) -> None:
        # The thread begins with the signal: a process that forks must have none. ``Thread.start`` would take a lock.
        _thread.start_new_thread(take_turn, ())

    before = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
