"""Calls a function on SIGTERM and SIGINT, in a thread of its own, where it may take locks.

Python runs a signal handler inside the main thread, between any two of its steps. A handler that sets an ``Event``
which the main thread is just about to wait for would wait for the main thread, and that one for the handler: the
process would never stop.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def call_on_stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` for every SIGINT and SIGTERM; afterwards signals do what they did before."""
    received = SimpleQueue[bool]()

    def handle(_: int, __: FrameType | None) -> None:
        received.put(True)  # safe in a handler: it takes no lock that Python code can be interrupted with

    def forward() -> None:
        while received.get():
            stop()

    Thread(target=forward, name="stop-signals", daemon=True).start()
    before = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        received.put(False)
