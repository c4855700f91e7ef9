"""The thread that writes the engine's heartbeat: only while the JVM answers, so that a hung JVM is detected."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from penstock.engine import events
from penstock.heartbeat import EVERY, Beat, HeartbeatFile


class HeartbeatWriter(threading.Thread):
    """``ping_jvm`` is set once there is a JVM. It returns when the JVM has answered, and hangs if the JVM does."""

    def __init__(self, directory: Path, pid: int, routes: int) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self._directory = directory
        self._pid = pid
        self._routes = routes
        self._ended = threading.Event()
        self.ping_jvm: Callable[[], object] = lambda: None
        self.stalled_routes: Callable[[], Mapping[str, float]] = dict
        self.running = False

    def run(self) -> None:
        number, file = 0, None
        while not self._ended.is_set():
            try:
                self.ping_jvm()
                file = file or HeartbeatFile(self._directory, self._routes)
                stalled = self.stalled_routes()
                file.write(Beat(self._pid, number, time.monotonic(), self.running, stalled))
                events.heartbeat_written(stalled)
                number += 1
            # A full disk passes; the engine's own check notices a JVM that is gone.
            except Exception as error:
                events.heartbeat_failed(str(error))
            self._ended.wait(EVERY)

    def stop(self) -> None:
        self._ended.set()
