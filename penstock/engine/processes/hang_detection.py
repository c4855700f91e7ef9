"""What the supervisor sees of processes that live and do nothing: an engine without a heartbeat, a stopped process.

It measures in seconds that it has itself lived through: after a sleep of the machine, or a stop of its own, whatever it
watches gets all of its time again.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil

from penstock.engine import events
from penstock.engine.processes.idle_timer import Stillness
from penstock.heartbeat import read_beat

START_SILENCE = 600.0
"""Seconds that an engine has to start its routes. Spark takes a quarter of a minute, and minutes where all is busy."""
LOOK_EVERY = 1.0
STOPPED_FOR = 15.0
"""Seconds after which a process that a signal has stopped is told to go on."""


class EngineLife:
    """Whether the engine gives signs of life."""

    def __init__(self, directory: Path, silence: float) -> None:
        self._directory = directory
        self._silence = silence
        self._beats = Stillness()
        self._start = Stillness()
        self._due = 0.0

    def silent_too_long(self, pid: int) -> float:
        """For how many seconds this engine has been silent, if that is longer than it may; else 0."""
        now = time.monotonic()
        if now < self._due:
            return 0.0
        self._due = now + LOOK_EVERY / 2
        beat = read_beat(self._directory)
        running = beat is not None and beat.pid == pid and beat.running
        starting_for = self._start.look((pid, running), now)
        silent_for = self._beats.look((pid, None if beat is None else beat.number), now)
        if running:
            return silent_for if silent_for > self._silence else 0.0
        return starting_for if starting_for > START_SILENCE else 0.0


class StoppedProcesses:
    """Those below this process that a signal has stopped (SIGSTOP). Nobody of ours is stopped on purpose, and one that
    is told to go on loses nothing."""

    def __init__(self, stopped_for: float = STOPPED_FOR) -> None:
        self._stopped_for = stopped_for
        self._stopped: dict[int, Stillness] = {}
        self._due = 0.0

    def continue_them(self) -> None:
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + LOOK_EVERY
        found = {process.pid: name for process, name in _stopped()}
        self._stopped = {pid: self._stopped.get(pid, Stillness()) for pid in found}
        for pid, stillness in self._stopped.items():
            seconds = stillness.look("stopped", now)
            if seconds > self._stopped_for:
                events.process_continued(found[pid], pid, seconds)
                # Somebody may have ended it since we looked.
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


def _stopped() -> list[tuple[psutil.Process, str]]:
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.status() == psutil.STATUS_STOPPED:
                found.append((process, process.name()))
        except psutil.NoSuchProcess:
            continue
    return found
