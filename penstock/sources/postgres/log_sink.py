"""The way into the log for all that the source reads: appends that wait for room, and how far they are on disk."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from threading import Event

import pyarrow as pa

from penstock.backoff import Reminder
from penstock.errors import LogFull
from penstock.log.config import FsyncInterval
from penstock.log.format.frame import Body
from penstock.log.format.partition_head import Head, read_head
from penstock.log.local import LocalLog
from penstock.log.writer import PartitionWriter
from penstock.sources.postgres.copy.copy_blocks import Stopped
from penstock.sources.postgres.stream_position import Lsn

FULL_DISK_PAUSE_SECONDS = 1.0

_log = logging.getLogger("penstock.postgres")


class Sink:
    """One thread appends; any may prepare."""

    def __init__(self, log: LocalLog, writer: PartitionWriter, stopping: Event) -> None:
        self._writer = writer
        self._stopping = stopping
        self._directory = log.partition_dir(writer.partition)
        self._synced_later = isinstance(log.config.fsync, FsyncInterval)
        self._unsure: deque[tuple[Head, Lsn]] = deque()
        self._sure: Lsn = 0

    def prepare(self, batch: pa.RecordBatch) -> Body | None:
        """The costly half of ``put``."""
        return self._writer.prepare(batch)

    def put(self, body: Body | None, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Into the log. A full disk is waited for, with ``meanwhile`` called now and then.

        Raises ``Stopped`` if we are to stop before there is room: then nothing of it was taken.
        """
        reminder = Reminder()
        while True:
            try:
                self._writer.write(body)
            except LogFull as error:
                if reminder.is_due(time.monotonic()):
                    _log.error("waiting: %s", error)
                if self._stopping.wait(FULL_DISK_PAUSE_SECONDS):
                    raise Stopped from None
                meanwhile()
            else:
                return

    def append(self, batch: pa.RecordBatch) -> None:
        self.put(self.prepare(batch))

    def durable(self, appended: Lsn) -> Lsn:
        """How far the stream is safe on disk, if it was appended as far as ``appended``.

        A log that syncs on a clock says so later. One that never does is taken at its word when it has taken something:
        who sets that has chosen to lose the last records in a power cut.
        """
        if not self._synced_later:
            return appended
        head = read_head(self._directory)
        assert head is not None
        if not self._unsure or self._unsure[-1][1] < appended:
            self._unsure.append((head, appended))
        while self._unsure and _is_synced(self._unsure[0][0], head):
            self._sure = self._unsure.popleft()[1]
        return self._sure


def _is_synced(then: Head, now: Head) -> bool:
    """Whether all that the log had then is on disk now."""
    return now.segment > then.segment or now.durable >= then.position
