"""A small file in the stage folder that tells what a task was doing if its process dies or hangs.

It names the step that the task is in, and its modification time changes with every batch of records. If the task takes
too long over a batch, it ends its process, and the file says where in the code that was. A task that finishes removes
its note.
"""

from __future__ import annotations

import faulthandler
import os
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from penstock.steps.current_step import report_steps_to

PREFIX = ".task-"
_LABEL_BYTES = 256
_FRAME = re.compile(r'File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<name>\S+)')


class TaskNote:
    """Use it in a ``with`` around a task. Call ``mark_progress`` after every batch of records, and ``suspend_limit``
    while other code runs.

    ``limit``: seconds per batch of records, by a clock that nobody sets; ``None`` for no limit. It also holds where
    native code does not let Python run.
    """

    def __init__(self, directory: Path, limit: float | None) -> None:
        self._path = directory / f"{PREFIX}{os.getpid()}-{uuid.uuid4().hex}"
        self._limit = limit
        self._slack = 0.0 if limit is None else min(1.0, limit / 10)
        """How much later than that it may be noticed: a limit is set by starting a thread, which is not done for every
        small batch."""
        self._set_at: float | None = None
        self._file = -1
        self._told = ExitStack()

    def __enter__(self) -> TaskNote:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.lseek(self._file, _LABEL_BYTES, os.SEEK_SET)
        self._told.enter_context(report_steps_to(self._write_step))
        self.mark_progress()
        return self

    def __exit__(self, *exception: object) -> None:
        self.suspend_limit()
        self._told.close()
        os.close(self._file)
        self._path.unlink(missing_ok=True)

    def mark_progress(self) -> None:
        os.utime(self._file)
        now = time.monotonic()
        if self._limit is not None and (self._set_at is None or now - self._set_at >= self._slack):
            faulthandler.dump_traceback_later(self._limit + self._slack, exit=True, file=self._file)
            self._set_at = now

    def suspend_limit(self) -> None:
        if self._limit is not None:
            faulthandler.cancel_dump_traceback_later()
            self._set_at = None

    def _write_step(self, label: str) -> None:
        os.pwrite(self._file, label.encode()[:_LABEL_BYTES].ljust(_LABEL_BYTES), 0)


@dataclass(frozen=True)
class UnfinishedTask:
    """What the note of a task that did not finish says."""

    step: str
    hung_at: str
    """Where in the code it was when its time was up; empty if it was not up."""
    moved: int
    """A number that changes whenever the task makes progress."""


def unfinished_tasks(directory: Path, pid: int | None = None) -> list[UnfinishedTask]:
    """The tasks whose notes exist, of one process or all: first those that hung, then the newest."""
    found = [task for path in directory.glob(f"{PREFIX}{'' if pid is None else pid}*") for task in _read(path)]
    return sorted(found, key=lambda task: (not task.hung_at, -task.moved))


def _read(path: Path) -> Iterator[UnfinishedTask]:
    try:
        text = path.read_bytes()
        moved = path.stat().st_mtime_ns
    except FileNotFoundError:
        return
    step = text[:_LABEL_BYTES].decode("utf-8", "replace").strip("\0 ")
    yield UnfinishedTask(step, _place(text[_LABEL_BYTES:].decode("utf-8", "replace")), moved)


def _place(dump: str) -> str:
    """The innermost line of the main thread, dumped last, that is not in an installed library; else any."""
    frames = [(found["file"], found["line"], found["name"]) for found in _FRAME.finditer(dump.rpartition("Thread ")[2])]
    own = [frame for frame in frames if f"{os.sep}lib{os.sep}python" not in frame[0] and "<frozen" not in frame[0]]
    for file, line, name in (own or frames)[:1]:
        return f"{file}, line {line}, in {name}"
    return "an unknown place" if dump.strip() else ""
