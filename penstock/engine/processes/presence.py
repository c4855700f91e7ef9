"""Whether an engine runs on this data, without getting in its way."""

from __future__ import annotations

from penstock.engine.layout import Layout
from penstock.engine.processes.process_identity import birth
from penstock.heartbeat import SILENT, read_beat


def engine_pid(layout: Layout) -> int | None:
    """The engine's process, or ``None``. Takes no lock: asking must never make a starting engine fail.

    The lock file keeps the number of the last engine and when it was born; another process may have that number by now.
    """
    try:
        pid, *born = (layout.run / "engine.lock").read_text().split()
        alive = birth(int(pid))
    except (OSError, ValueError):
        return None
    return int(pid) if alive is not None and born in ([], [alive]) else None


def engine_silence(layout: Layout, pid: int | None) -> float | None:
    """For how many seconds the engine that runs has given no sign of life, if that is longer than it should be."""
    beat = None if pid is None else read_beat(layout.run)
    if beat is None or beat.pid != pid:
        return None
    silence = beat.silence()
    return silence if silence > SILENT else None


def routes_still(layout: Layout, pid: int | None) -> dict[str, float]:
    """Per route whose tasks have not moved for a while, for how many seconds."""
    beat = None if pid is None else read_beat(layout.run)
    if beat is None or beat.pid != pid:
        return {}
    return {route: seconds for route, seconds in beat.routes.items() if seconds > SILENT}


def silence_told(pid: int | None, silence: float | None) -> str:
    """A line on the engine: whether it runs, and whether it only seems to."""
    if pid is None:
        return "the engine does not run"
    if silence is None:
        return f"the engine runs, pid {pid}"
    return f"the engine, pid {pid}, has given no sign of life for {silence:.0f} s"
