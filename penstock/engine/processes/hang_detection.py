"""How the supervisor detects processes that live and do nothing: an engine without a heartbeat, a stopped process.

It counts only seconds in which it ran itself: after the machine slept, or the supervisor was stopped, every process
that it watches gets its full time again.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil

from penstock.engine import events
from penstock.engine.processes.idle_timer import IdleTimer
from penstock.heartbeat import read_beat

START_SILENCE = 600.0
"""Seconds that an engine has to start its routes. Spark takes 15 seconds, and minutes on a busy machine."""
CHECK_EVERY = 1.0
STOPPED_FOR = 15.0
"""Seconds after which a process that a signal has stopped is resumed."""


class EngineWatch:
    """Whether the engine gives signs of life."""

    def __init__(self, directory: Path, silence: float) -> None:
        self._directory = directory
        self._silence = silence
        self._beats = IdleTimer()
        self._start = IdleTimer()
        self._due = 0.0

    def silent_too_long(self, pid: int) -> float:
        """Seconds for which this engine has been silent, if that is too long; else 0."""
        now = time.monotonic()
        if now < self._due:
            return 0.0
        self._due = now + CHECK_EVERY / 2
        beat = read_beat(self._directory)
        running = beat is not None and beat.pid == pid and beat.running
        starting_for = self._start.observe((pid, running), now)
        silent_for = self._beats.observe((pid, None if beat is None else beat.number), now)
        if running:
            return silent_for if silent_for > self._silence else 0.0
        return starting_for if starting_for > START_SILENCE else 0.0


class StoppedProcesses:
    """Descendants of this process that a signal has stopped (SIGSTOP). None is stopped on purpose, and resuming one
    loses nothing."""

    def __init__(self, stopped_for: float = STOPPED_FOR) -> None:
        self._stopped_for = stopped_for
        self._stopped: dict[int, IdleTimer] = {}
        self._due = 0.0

    def resume_stopped(self) -> None:
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + CHECK_EVERY
        found = {process.pid: name for process, name in _stopped()}
        self._stopped = {pid: self._stopped.get(pid, IdleTimer()) for pid in found}
        for pid, timer in self._stopped.items():
            seconds = timer.observe("stopped", now)
            if seconds > self._stopped_for:
                events.process_continued(found[pid], pid, seconds)
                # It may have ended since we looked.
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
