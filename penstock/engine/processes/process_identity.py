"""Identifies a process by its start time in ticks since boot, which no clock changes.

A pid is given to another process later, and a creation time in seconds since 1970 moves when somebody sets the clock.
"""

from __future__ import annotations

from pathlib import Path

import psutil


def start_time(pid: int) -> str | None:
    """A text that stays the same while the process lives and differs for any other process with its pid. ``None`` if
    there is no such process, or only a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return _start_time_without_proc(pid)
    # The name, in brackets, may hold anything; the third field follows it.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else fields[19]


def _start_time_without_proc(pid: int) -> str | None:
    """For systems without /proc."""
    if Path("/proc/self/stat").exists():
        return None
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else f"{process.create_time():.2f}"
    except psutil.Error:
        return None
