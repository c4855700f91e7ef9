"""The control records of a route: ticks, which tell its holding step the time.

They are records of a partition that only the route reads, so a replayed batch sees the same ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from threading import Event

from penstock.engine import events
from penstock.engine.route_sources import control_source
from penstock.errors import PenstockError
from penstock.log.local_log import LocalLog
from penstock.log.writer import PartitionWriter
from penstock.record import EPOCH, Op, Record, entries

TICK_NAMESPACE = "tick"


class Ticker:
    """Writes a tick every so many seconds while something waits for a time. Its time never goes back, and passes as
    fast as a clock that nobody sets."""

    def __init__(self, log: LocalLog, route: str, every: float, waits: Callable[[], bool]) -> None:
        self._log = log
        self._route = route
        self._every = every
        self._waits = waits

    def keep_ticking(self, ended: Event) -> None:
        """Until ``ended``. A log that is unavailable is tried again at the next tick."""
        ticking: _Ticking | None = None
        try:
            while not ended.wait(self._every):
                try:
                    if self._waits():
                        ticking = ticking or _Ticking(self._log, self._route)
                        ticking.tick()
                except (PenstockError, OSError) as error:
                    events.tick_failed(self._route, str(error))
                    if ticking is not None:
                        ticking.close()
                        ticking = None
        finally:
            if ticking is not None:
                ticking.close()


class _Ticking:
    def __init__(self, log: LocalLog, route: str) -> None:
        self._writer: PartitionWriter = log.writer(control_source(route))
        self._first = max(round(time.time() * 1e6), last_tick(log, route) + 1)
        self._since = time.monotonic()

    def tick(self) -> None:
        now = self._first + round((time.monotonic() - self._since) * 1e6)
        stamp = EPOCH + timedelta(microseconds=now)
        self._writer.append(entries([Record(None, TICK_NAMESPACE, Op.COMMAND, timestamp=stamp)]))

    def close(self) -> None:
        self._writer.close()


def last_tick(log: LocalLog, route: str) -> int:
    """The time (µs) of the newest tick in the log; 0 if there is none."""
    newest = 0
    for partition in log.partitions([control_source(route)]):
        end = log.bounds(partition).end
        for batch in log.read(partition, max(0, end - 1)):
            newest = max(newest, int(batch.column("timestamp")[-1].value))
    return newest
