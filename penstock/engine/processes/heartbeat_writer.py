"""The thread that writes the engine's sign of life: only while the JVM answers, so that one that hangs is seen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from penstock.engine import events
from penstock.heartbeat import EVERY, Beat, HeartbeatFile


class Pulse(threading.Thread):
    """``ask`` is set when there is a JVM to ask; it returns when that has answered, and may hang as it does."""

    def __init__(self, directory: Path, pid: int, routes: int) -> None:
        super().__init__(name="pulse", daemon=True)
        self._directory = directory
        self._pid = pid
        self._routes = routes
        self._ended = threading.Event()
        self.ask: Callable[[], object] = lambda: None
        self.still: Callable[[], Mapping[str, float]] = dict
        self.running = False

    def run(self) -> None:
        number, file = 0, None
        while not self._ended.is_set():
            try:
                self.ask()
                file = file or HeartbeatFile(self._directory, self._routes)
                still = self.still()
                file.write(Beat(self._pid, number, time.monotonic(), self.running, still))
                events.heart_beat(still)
                number += 1
            # A disk that is full, or a JVM that is gone: the one passes, of the other others take care.
            except Exception as error:
                events.heart_missed(str(error))
            self._ended.wait(EVERY)

    def end(self) -> None:
        self._ended.set()
