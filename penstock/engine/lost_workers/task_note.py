"""What a task leaves behind for whoever finds its process dead or hanging: a small file in the stage folder.

It says which step the task is in, its time of change moves with every batch of records, and if the task takes longer
over one than it may, it ends its process and the file says where in the code that was. A task that comes to its end
takes its note away.
"""

from __future__ import annotations

import faulthandler
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from penstock.steps.current_step import told_to

PREFIX = ".task-"
_LABEL_BYTES = 256
_FRAME = re.compile(r'File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<name>\S+)')


class TaskNote:
    """Use it in a ``with`` around a task; ``moved`` after every batch of records, ``rest`` while others are at work.

    ``limit`` is in seconds of a clock that nobody sets, per batch of records; none, and it may take for ever. The limit
    holds also where the code does not let Python run.
    """

    def __init__(self, directory: Path, limit: float | None) -> None:
        self._path = directory / f"{PREFIX}{os.getpid()}-{uuid.uuid4().hex}"
        self._limit = limit
        self._file = -1
        self._told = ExitStack()

    def __enter__(self) -> TaskNote:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.lseek(self._file, _LABEL_BYTES, os.SEEK_SET)
        self._told.enter_context(told_to(self._tell))
        self.moved()
        return self

    def __exit__(self, *exception: object) -> None:
        self.rest()
        self._told.close()
        os.close(self._file)
        self._path.unlink(missing_ok=True)

    def moved(self) -> None:
        os.utime(self._file)
        if self._limit is not None:
            faulthandler.dump_traceback_later(self._limit, exit=True, file=self._file)

    def rest(self) -> None:
        if self._limit is not None:
            faulthandler.cancel_dump_traceback_later()

    def _tell(self, label: str) -> None:
        os.pwrite(self._file, label.encode()[:_LABEL_BYTES].ljust(_LABEL_BYTES), 0)


@dataclass(frozen=True)
class Trace:
    """What the note of a task says that did not come to its end."""

    step: str
    hung_at: str
    """Where in the code it was when its time was up; empty if it was not."""
    moved: int
    """Some number that changes whenever the task has done something."""


def traces(directory: Path, pid: int | None = None) -> list[Trace]:
    """The notes that are there, of one process or all; those with a place where they hang first, then the newest."""
    found = [trace for path in directory.glob(f"{PREFIX}{'' if pid is None else pid}*") for trace in _read(path)]
    return sorted(found, key=lambda trace: (not trace.hung_at, -trace.moved))


def _read(path: Path) -> Iterator[Trace]:
    try:
        text = path.read_bytes()
        moved = path.stat().st_mtime_ns
    except FileNotFoundError:
        return
    step = text[:_LABEL_BYTES].decode("utf-8", "replace").strip("\0 ")
    yield Trace(step, _place(text[_LABEL_BYTES:].decode("utf-8", "replace")), moved)


def _place(dump: str) -> str:
    """The innermost line of the main thread, the last one told, that is not of an installed library; else of any."""
    frames = [(found["file"], found["line"], found["name"]) for found in _FRAME.finditer(dump.rpartition("Thread ")[2])]
    own = [frame for frame in frames if f"{os.sep}lib{os.sep}python" not in frame[0] and "<frozen" not in frame[0]]
    for file, line, name in (own or frames)[:1]:
        return f"{file}, line {line}, in {name}"
    return "an unknown place" if dump.strip() else ""
