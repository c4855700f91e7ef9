"""The time of day for retention: a clock that was set forward must not make new records look old.

It is the wall clock minus what it was set forward, until enough time has really passed for older records to be as old
as they look. Passed time is measured by a clock that nobody sets. A clock that is set back needs no care: records then
look younger and are kept longer.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.boot import boot_id

TOLERANCE = 5.0
"""Seconds by which the clocks may drift between two observations without one of them having been set."""


AFTER_BOOT = 3600.0
"""Seconds after which the clock of a machine that was off is trusted."""


@dataclass(frozen=True)
class Clocks:
    """The clocks of a machine at one moment: seconds since 1970, and seconds since its last boot."""

    wall: float
    running: float
    boot: str

    @classmethod
    def now(cls) -> Clocks:
        # Without CLOCK_BOOTTIME, sleep of the machine is not counted, and records are kept longer.
        ticking = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return cls(time.time(), time.clock_gettime(ticking), boot_id())


@dataclass(frozen=True)
class ClockState:
    """The clocks when last observed, how far the wall clock is ``ahead`` of the passed time, and for how long."""

    clocks: Clocks
    ahead: float = 0.0
    since: float = 0.0

    @property
    def trusted(self) -> float:
        """Seconds since 1970, at most what the clock once showed plus the time that has passed since."""
        return self.clocks.wall - self.ahead


def observe(before: ClockState | None, clocks: Clocks, settles: float) -> ClockState:
    """The state after another observation. A step forward is trusted when ``settles`` seconds have passed since.

    How long a machine was off is unknown. So the time between is trusted once it has run for an hour: a clock that was
    wrong at the boot is set right by then.
    """
    if before is None:
        return ClockState(clocks)
    if before.clocks.boot != clocks.boot or clocks.running < before.clocks.running:
        ahead = max(0.0, before.ahead + clocks.wall - before.clocks.wall - clocks.running)
        return ClockState(clocks, ahead, before.since if before.ahead else max(0.0, settles - AFTER_BOOT))
    passed = clocks.running - before.clocks.running
    jump = clocks.wall - before.clocks.wall - passed
    since = before.since + passed
    if jump > TOLERANCE:
        return ClockState(clocks, before.ahead + jump)
    if jump < -TOLERANCE:
        # Set back, perhaps to what it was.
        return ClockState(clocks, max(0.0, before.ahead + jump), since)
    if since >= settles:
        return ClockState(clocks)
    return ClockState(clocks, before.ahead, since)


class SteadyClock:
    """Keeps its state in a file, so that it survives a restart of the engine."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: ClockState | None = None

    def now(self, settles: float, clocks: Clocks | None = None) -> float:
        """Seconds since 1970 that retention may trust."""
        self._seen = seen = observe(self._seen or self._read(), clocks or Clocks.now(), settles)
        # Ignored on a full disk: retention must run there to make room.
        with suppress(OSError):
            scratch = self._path.with_suffix(".new")
            scratch.parent.mkdir(parents=True, exist_ok=True)
            scratch.write_text(json.dumps(asdict(seen)))
            scratch.replace(self._path)
        return seen.trusted

    def _read(self) -> ClockState | None:
        try:
            raw = json.loads(self._path.read_text())
            clocks = Clocks(float(raw["clocks"]["wall"]), float(raw["clocks"]["running"]), str(raw["clocks"]["boot"]))
            return ClockState(clocks, float(raw["ahead"]), float(raw["since"]))
        except (OSError, ValueError, TypeError, KeyError):
            return None
