"""The one writer of a route's control records."""

from __future__ import annotations

import time

from penstock.engine.route_sources import control_source
from penstock.engine.stateful.control_records import command_record, release_record, tick_record
from penstock.log.local_log import LocalLog
from penstock.log.writer import PartitionWriter
from penstock.record import Record, entries


class ControlWriter:
    """Opens the route's control partition when there is something to write. The time of its records never goes back,
    and passes as fast as a clock that nobody sets. After an error the next record is tried on a partition that is
    opened anew. For one thread."""

    def __init__(self, log: LocalLog, route: str) -> None:
        self._log = log
        self._route = route
        self._opened: _Opened | None = None

    def tick(self) -> None:
        """Say what time it is."""
        opened = self._open()
        self._append(opened, tick_record(opened.now()))

    def release(self, up_to: int) -> int:
        """Say that nothing waits any longer that stands at or before this stamp. Returns the offset of the record."""
        opened = self._open()
        return self._append(opened, release_record(up_to, opened.now()))

    def command(self, name: str, data: bytes) -> None:
        """Say something that only the step understands."""
        opened = self._open()
        self._append(opened, command_record(name, data, opened.now()))

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.writer.close()

    def __enter__(self) -> ControlWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _open(self) -> _Opened:
        self._opened = self._opened or _Opened(self._log, self._route)
        return self._opened

    def _append(self, opened: _Opened, record: Record) -> int:
        try:
            return opened.writer.append(entries([record])).start
        except Exception:
            self.close()
            raise


class _Opened:
    def __init__(self, log: LocalLog, route: str) -> None:
        self._first = max(round(time.time() * 1e6), last_time(log, route) + 1)
        self._since = time.monotonic()
        self.writer: PartitionWriter = log.writer(control_source(route))

    def now(self) -> int:
        """The route's time, in µs."""
        return self._first + round((time.monotonic() - self._since) * 1e6)


def last_time(log: LocalLog, route: str) -> int:
    """The time (µs) of the newest control record in the log; 0 if there is none."""
    newest = 0
    for partition in log.partitions([control_source(route)]):
        end = log.bounds(partition).end
        for batch in log.read(partition, max(0, end - 1)):
            newest = max(newest, int(batch.column("timestamp")[-1].value))
    return newest
