"""Ctrl-C and SIGTERM as events, for as long as a verb runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

from penstock.stop_signals import call_on_stop_signals


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
        # Not through ``sys.stderr``: the main thread may be inside it, and hang.
        os.write(sys.stderr.fileno(), message.encode())

    with call_on_stop_signals(stop):
        yield stopping, hurry
