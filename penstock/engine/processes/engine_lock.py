"""One engine per data directory.

Spark's fast checkpoint writer and the stage folders need one driver at a time. The operating system holds the lock and
releases it with the process. A killed driver leaves its JVM behind for a moment, and that JVM may still write to a
checkpoint: the next engine that takes the lock waits until the JVM is gone.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path

from penstock.engine.processes.process_identity import start_time
from penstock.errors import RouteError


class EngineLock:
    """Held from ``acquire`` until ``release`` or the end of the process."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "engine.lock"
        self._jvm = directory / "engine.jvm"
        self._handle: int | None = None

    def acquire(self, patience: float = 30.0) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = next(iter(os.pread(handle, 64, 0).decode().split()), "unknown")
            os.close(handle)
            raise RouteError(
                "PEN-ENG-001",
                f"another engine (pid {holder}) already runs on {self._path.parent.parent}.",
                "Stop it first, or use another `data_dir`.",
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()} {start_time(os.getpid())}".encode(), 0)
        self._handle = handle
        try:
            self._wait_for_old_jvm(patience)
        except RouteError:
            self._close()
            raise

    def note_jvm(self, pid: int) -> None:
        """Note the JVM of this driver for the engine that starts after a crash."""
        self._jvm.write_text(json.dumps({"pid": pid, "birth": start_time(pid)}))

    def release(self) -> None:
        """Call it after Spark was stopped: its JVM may live on, but writes to no checkpoint any more."""
        self._jvm.unlink(missing_ok=True)
        if self._handle is not None:
            os.ftruncate(self._handle, 0)
        self._close()

    def _close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _wait_for_old_jvm(self, patience: float) -> None:
        try:
            noted = json.loads(self._jvm.read_text())
            pid = int(noted["pid"])
        except (OSError, ValueError, KeyError, TypeError):
            return
        # A note of an earlier version has no start time; its pid is all there is.
        born = noted.get("birth") or start_time(pid)
        deadline = time.monotonic() + patience
        while born is not None and start_time(pid) == born:
            if time.monotonic() > deadline:
                raise RouteError(
                    "PEN-ENG-002",
                    f"the JVM of an engine that was killed (pid {pid}) is still alive.",
                    f"End it with: kill {pid}",
                )
            time.sleep(0.05)
