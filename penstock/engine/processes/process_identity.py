"""Which process a number stands for, told by something that no clock changes: when it was started, in ticks since boot.

A number is given to another process later, and a creation time in seconds since 1970 moves when somebody sets the
clock.
"""

from __future__ import annotations

from pathlib import Path

import psutil


def birth(pid: int) -> str | None:
    """A text that is the same for as long as the process lives, and another for any other process with its number.
    ``None`` if there is no such process, or only what is left of one."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return _birth_elsewhere(pid)
    # The name, in brackets, may hold anything; behind it the fields are counted from the third.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else fields[19]


def _birth_elsewhere(pid: int) -> str | None:
    """For systems without /proc."""
    if Path("/proc/self/stat").exists():
        return None
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else f"{process.create_time():.2f}"
    except psutil.Error:
        return None
