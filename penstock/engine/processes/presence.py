"""Tells whether an engine runs on this data, without disturbing it."""

from __future__ import annotations

from penstock.engine.layout import Layout
from penstock.engine.processes.process_identity import start_time
from penstock.heartbeat import SILENT, read_beat


def engine_pid(layout: Layout) -> int | None:
    """The pid of the engine, or ``None``. Takes no lock: asking must never make a starting engine fail.

    The lock file keeps the pid and start time of the last engine; another process may have that pid by now.
    """
    try:
        pid, *born = (layout.run / "engine.lock").read_text().split()
        alive = start_time(int(pid))
    except (OSError, ValueError):
        return None
    return int(pid) if alive is not None and born in ([], [alive]) else None


def engine_silence(layout: Layout, pid: int | None) -> float | None:
    """Seconds since the last heartbeat of a running engine, if that is too long ago."""
    beat = None if pid is None else read_beat(layout.run)
    if beat is None or beat.pid != pid:
        return None
    silence = beat.silence()
    return silence if silence > SILENT else None


def stalled_routes(layout: Layout, pid: int | None) -> dict[str, float]:
    """Routes whose tasks have made no progress for a while, and for how many seconds."""
    beat = None if pid is None else read_beat(layout.run)
    if beat is None or beat.pid != pid:
        return {}
    return {route: seconds for route, seconds in beat.routes.items() if seconds > SILENT}


def describe_engine(pid: int | None, silence: float | None) -> str:
    """A line on the engine: whether it runs, and whether it hangs."""
    if pid is None:
        return "the engine does not run"
    if silence is None:
        return f"the engine runs, pid {pid}"
    return f"the engine, pid {pid}, has given no sign of life for {silence:.0f} s"
