"""Writes everything that the source reads into the log: waits for disk space, and knows how far it is durable."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Event

import pyarrow as pa

from penstock.log.config import FsyncInterval
from penstock.log.format.frame import Body
from penstock.log.format.head import Head, read_head
from penstock.log.local_log import LocalLog
from penstock.log.writer import PartitionWriter
from penstock.sources.postgres.copy.copy_blocks import Stopped
from penstock.sources.postgres.stream_position import Lsn


class Sink:
    """One thread writes; any thread may prepare."""

    def __init__(self, log: LocalLog, writer: PartitionWriter, stopping: Event) -> None:
        self._writer = writer
        self._stopping = stopping
        self._directory = log.partition_dir(writer.partition)
        self._synced_later = isinstance(log.config.fsync, FsyncInterval)
        self._unsure: deque[tuple[Head, Lsn]] = deque()
        self._sure: Lsn = 0

    def prepare(self, batch: pa.RecordBatch) -> Body | None:
        """The expensive half of ``write``."""
        return self._writer.prepare(batch)

    def write(self, body: Body | None, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Write into the log. Waits while the disk is full, and calls ``meanwhile`` now and then.

        Raises ``Stopped`` if we are told to stop before there is room: then nothing was written.
        """
        if not self._writer.write_when_there_is_room(body, self._stopping, meanwhile):
            raise Stopped

    def append(self, batch: pa.RecordBatch) -> None:
        self.write(self.prepare(batch))

    def durable_lsn(self, appended: Lsn) -> Lsn:
        """How far the stream is safe on disk, if it was appended as far as ``appended``.

        A log that syncs at an interval is behind its appends. One that never syncs counts as durable at once: whoever
        sets that accepts that a power cut loses the last records.
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
    """Whether everything that the log had then is on disk now."""
    return now.segment > then.segment or now.durable >= then.position
