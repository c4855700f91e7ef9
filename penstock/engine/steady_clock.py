"""The time of day, for retention: a clock that was set forward must not make what was just written look old.

It is the wall clock, held back by what it was set forward, until so much time has really passed that what was written
before is as old as it looks. How much time passes is measured by a clock that nobody sets. A clock that is set back
needs no care: records then look younger, and are kept longer.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

TOLERANCE = 5.0
"""Seconds by which the clocks may differ from one look to the next without one of them having been set."""


@dataclass(frozen=True)
class Clocks:
    """What the clocks of a machine show at one moment: seconds since 1970, and since it was started, this time."""

    wall: float
    running: float
    boot: str

    @classmethod
    def now(cls) -> Clocks:
        # Where there is no such clock, time that the machine sleeps is not counted, and records are kept longer.
        ticking = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return cls(time.time(), time.clock_gettime(ticking), _boot())


@dataclass(frozen=True)
class Seen:
    """The clocks at the last look, how far the wall clock is ``ahead`` of what has passed, and for how long it is."""

    clocks: Clocks
    ahead: float = 0.0
    since: float = 0.0

    @property
    def trusted(self) -> float:
        """Seconds since 1970 that are no more than what was ever shown plus what has passed since."""
        return self.clocks.wall - self.ahead


def look(before: Seen | None, clocks: Clocks, settles: float) -> Seen:
    """What is known after another look. A step forward is believed when ``settles`` seconds have passed since it.

    Over a restart of the machine nobody can say how much time has passed; there the wall clock is believed.
    """
    if before is None or before.clocks.boot != clocks.boot or clocks.running < before.clocks.running:
        return Seen(clocks)
    passed = clocks.running - before.clocks.running
    jump = clocks.wall - before.clocks.wall - passed
    since = before.since + passed
    if jump > TOLERANCE:
        return Seen(clocks, before.ahead + jump)
    if jump < -TOLERANCE:
        # Set back, perhaps to what it was.
        return Seen(clocks, max(0.0, before.ahead + jump), since)
    if since >= settles:
        return Seen(clocks)
    return Seen(clocks, before.ahead, since)


class SteadyClock:
    """Keeps what it has seen in a file, so that a restart of the engine is no way around it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: Seen | None = None

    def now(self, settles: float, clocks: Clocks | None = None) -> float:
        """Seconds since 1970, at most."""
        self._seen = seen = look(self._seen or self._read(), clocks or Clocks.now(), settles)
        # On a full disk too: retention is what makes room there.
        with suppress(OSError):
            scratch = self._path.with_suffix(".new")
            scratch.parent.mkdir(parents=True, exist_ok=True)
            scratch.write_text(json.dumps(asdict(seen)))
            scratch.replace(self._path)
        return seen.trusted

    def _read(self) -> Seen | None:
        try:
            raw = json.loads(self._path.read_text())
            clocks = Clocks(float(raw["clocks"]["wall"]), float(raw["clocks"]["running"]), str(raw["clocks"]["boot"]))
            return Seen(clocks, float(raw["ahead"]), float(raw["since"]))
        except (OSError, ValueError, TypeError, KeyError):
            return None


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
