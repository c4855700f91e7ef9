"""Whether an engine runs on this data, without getting in its way."""

from __future__ import annotations

import psutil

from penstock.engine.layout import Layout

_CLOCK_GRAIN = 1.0


def engine_pid(layout: Layout) -> int | None:
    """The engine's process, or ``None``. Takes no lock: asking must never make a starting engine fail.

    The lock file keeps the number of the last engine; a process that is younger than the file only reuses the number.
    """
    lock = layout.run / "engine.lock"
    try:
        pid, written = int(lock.read_text()), lock.stat().st_mtime
        process = psutil.Process(pid)
        alive = process.status() != psutil.STATUS_ZOMBIE
        return pid if alive and process.create_time() <= written + _CLOCK_GRAIN else None
    except (OSError, ValueError, psutil.Error):
        return None
