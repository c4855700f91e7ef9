"""The engine's heartbeat: a small file that it writes every second, as long as it and its JVM respond.

A process that watches the engine sees, by its own clock, whether the number moves. One that looks once reads how long
ago the last beat was: by a clock that nobody sets and that all processes of a machine share. It begins anew with the
machine, and the file may outlive it: a beat from before the last boot is none. The file is written in place, so that a
full disk does not make an engine look dead.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from penstock.boot import boot_id

EVERY = 1.0
"""Seconds from one beat to the next."""
SILENT = 15.0
"""Seconds without a beat after which something is wrong."""
NAME = "heartbeat"

_ROOM = 256


@dataclass(frozen=True)
class Beat:
    """``routes``: per route with a batch, the seconds without progress."""

    pid: int
    number: int
    at: float
    running: bool
    """Whether the routes have been started."""
    routes: Mapping[str, float] = field(default_factory=dict)
    boot: str = field(default_factory=boot_id)
    """The start of the machine from which ``at`` counts."""

    def silence(self) -> float:
        """Seconds since it was made."""
        return time.monotonic() - self.at


class HeartbeatFile:
    """Written by the engine alone."""

    def __init__(self, directory: Path, routes: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = os.open(directory / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = _ROOM * (routes + 1)
        # Remove what an engine with more routes has left: it would be read with every beat.
        os.ftruncate(self._file, self._size)

    def write(self, beat: Beat) -> None:
        os.pwrite(self._file, json.dumps(asdict(beat)).encode().ljust(self._size)[: self._size], 0)

    def close(self) -> None:
        os.close(self._file)


def read_beat(directory: Path) -> Beat | None:
    """The last beat; ``None`` if there was none since the machine started, or it is being written just now."""
    try:
        beat = Beat(**{"boot": "", **json.loads((directory / NAME).read_bytes())})
    except (OSError, ValueError, TypeError):
        return None
    # Where the system does not name its boots, only the clock tells.
    return beat if beat.boot == boot_id() and beat.at <= time.monotonic() else None
