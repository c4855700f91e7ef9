"""A wall clock that a test can set, as processes see it: their clocks that nobody can set go on as they are.

clock = SteppedClock(folder)
subprocess.Popen(..., env={**os.environ, **clock.environment})
clock.step(-3 * HOUR)
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
import subprocess
import tempfile
from pathlib import Path

HOUR = 3600
DAY = 24 * HOUR

_SOURCE = Path(__file__).with_name("stepped_clock.c")
_ENSURE = Path(__file__).parents[2] / "scripts" / "ensure-cc"


class SteppedClock:
    """Shown by every process that is started with its ``environment``."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "clock"
        self.path.write_bytes(struct.pack("<q", 0))
        with self.path.open("r+b") as file:
            self._ahead = mmap.mmap(file.fileno(), 8)

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(library()), "PENSTOCK_CLOCK_FILE": str(self.path)}

    @property
    def ahead(self) -> int:
        """Seconds by which it is before the clock of the machine."""
        (seconds,) = struct.unpack("<q", self._ahead[:])
        return int(seconds)

    def step(self, seconds: int) -> None:
        """Set it forward or back, at once, for all of them."""
        self._ahead[:] = struct.pack("<q", self.ahead + seconds)


def library() -> Path:
    """The library to preload, compiled once for each version of its source."""
    digest = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]
    made = Path(tempfile.gettempdir()) / f"penstock-stepped-clock-{os.getuid()}-{digest}.so"
    if not made.exists():
        compiler = subprocess.run([_ENSURE], check=True, capture_output=True, text=True).stdout.strip()
        scratch = made.with_suffix(f".{os.getpid()}")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", scratch, _SOURCE, "-ldl"], check=True)
        scratch.replace(made)
    return made
