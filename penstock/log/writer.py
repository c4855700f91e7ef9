"""The one writer of a partition: appends frames, makes them durable, publishes the new end.

``append`` happens completely or not at all. When it returns, the records are on disk (``fsync: always``) and readers
see them; when it raises, the file ends where it ended before and nothing of the append can be read. A ``kill -9`` at
any point loses nothing that an append returned for, and damages no earlier frame.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.backoff import Reminder
from penstock.durable import sync_directory
from penstock.errors import LogError, LogFull
from penstock.faults import reach
from penstock.log.config import FsyncInterval, LogConfig
from penstock.log.format.frame import LAST_OFFSET, SCATTERED_SCHEMA, Body, encode, place
from penstock.log.format.head import Head, HeadFile
from penstock.log.format.index import IndexWriter, Place, first_place
from penstock.log.format.log_files import disk_full_error, index_path, is_full, segment_bases, segment_path, try_lock
from penstock.log.format.segment import after
from penstock.log.lineage import note_writer
from penstock.log.logical_clock import Clock, last_stamp
from penstock.log.recovery import RecoveredEnd, TornTail, open_index, recover
from penstock.record import ENTRY_SCHEMA, int64_array

FULL_DISK_PAUSE_SECONDS = 1.0

_log = logging.getLogger("penstock.log")
_REQUIRED = [ENTRY_SCHEMA.get_field_index(field.name) for field in ENTRY_SCHEMA if not field.nullable]


class PartitionWriter:
    """Safe to use from several threads; only one process can have it, until ``close``."""

    def __init__(
        self,
        directory: Path,
        partition: int,
        config: LogConfig,
        first_offset: int = 0,
        neighbours: Iterable[Path] = (),
    ) -> None:
        """Lock the partition, recover its end, and continue there, at ``first_offset`` or later. ``neighbours`` are the
        folders of the log's other partitions: what is appended here is newer than everything in them."""
        self.partition = partition
        self.recovered: TornTail | None = None
        self.before_roll: Callable[[], None] | None = None
        """Called when a segment is about to be closed: from then on, retention and compaction may touch it."""
        self._directory = directory
        self._config = config
        self._compression = config.compression
        self._always = config.fsync == "always"
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._broken: str | None = None
        self._next: int
        self._segment: Path
        self._base: int
        self._end: Place
        self._durable: int
        self._index: IndexWriter
        self._indexed: Place
        self._is_noted = False
        lock = try_lock(directory / "lock")
        if lock is None:
            raise LogError(
                "PEN-LOG-001",
                f"partition {partition} of the log in {directory.parent} has a writer already.",
                "A partition has one writer: stop the other process first.",
            )
        self._partition_lock = lock
        try:
            found = recover(directory)
            self._clock = Clock(directory.parent, partition, [directory, *neighbours])
        except BaseException:
            os.close(lock)
            raise
        try:
            self._open(found, first_offset)
        except BaseException:
            self._clock.close()
            os.close(lock)
            raise
        if isinstance(config.fsync, FsyncInterval):
            threading.Thread(target=self._sync_periodically, args=(config.fsync.interval,), daemon=True).start()

    @property
    def next_offset(self) -> int:
        """The offset that the next record gets."""
        return self._next

    def append(self, batch: pa.RecordBatch) -> range:
        """Append entries (``ENTRY_SCHEMA``) as one frame and return their offsets.

        Raises ``LogFull`` if there is no room (the same append may work later) and ``LogError`` if the entries cannot
        be taken as they are or the writer must be reopened.
        """
        return self.write(self.prepare(batch))

    def append_at(self, batch: pa.RecordBatch, offsets: npt.NDArray[np.int64]) -> range:
        """Append entries at offsets of their own, ascending and none below ``next_offset``, as one frame.

        For an imported log that keeps its offsets. Raises the same errors as ``append``.
        """
        _check(batch)
        if batch.num_rows == 0:
            return range(self._next, self._next)
        if len(offsets) != batch.num_rows or np.any(offsets[1:] <= offsets[:-1]):
            raise LogError(
                "PEN-LOG-014",
                "the offsets do not ascend, or are not as many as the entries.",
                "Give every entry an offset of its own, in ascending order.",
            )
        first, last = int(offsets[0]), int(offsets[-1])
        if last - first + 1 != len(offsets):
            columns = [int64_array(offsets), *batch.columns]
            batch = pa.RecordBatch.from_arrays(columns, schema=SCATTERED_SCHEMA)
        return self.write(encode(batch, self._compression), at=(first, last))

    def write_when_there_is_room(
        self, body: Body | None, stopping: threading.Event, meanwhile: Callable[[], None] = lambda: None
    ) -> bool:
        """``write``, again and again while the disk is full; calls ``meanwhile`` now and then. ``False``: we are told
        to stop before there is room, and nothing was written."""
        reminder = Reminder()
        while True:
            try:
                self.write(body)
            except LogFull as error:
                if reminder.is_due(time.monotonic()):
                    _log.error("waiting: %s", error)
                if stopping.wait(FULL_DISK_PAUSE_SECONDS):
                    return False
                meanwhile()
            else:
                return True

    def prepare(self, batch: pa.RecordBatch) -> Body | None:
        """The expensive half of an append: one thread may prepare while another writes what was prepared before."""
        _check(batch)
        return encode(batch, self._compression) if batch.num_rows else None

    def write(self, body: Body | None, at: tuple[int, int] | None = None) -> range:
        """The other half: one write, one sync. ``at``: the first and the last offset, if they are not the next ones."""
        with self._lock:
            self._check_usable()
            if body is None:
                return range(self._next, self._next)
            first, last = (self._next, self._next + body.records - 1) if at is None else at
            if first < self._next:
                raise LogError(
                    "PEN-LOG-014",
                    f"offset {first} was given already: the next one of partition {self.partition} is {self._next}.",
                    f"Append at offset {self._next} or higher.",
                )
            if last > LAST_OFFSET:
                raise LogError(
                    "PEN-LOG-019",
                    f"partition {self.partition} has no offset for it: {LAST_OFFSET} is the highest, the next one is"
                    f" {self._next}.",
                    "Nothing was written. Take these records into another partition: under another source's name.",
                )
            self._note_writer(first)
            try:
                stamp = self._clock.tick()
                header, header_bytes = place(body, first, last, stamp)
                if self._is_time_to_roll(header.frame_bytes):
                    self._roll()
                reach("log.append.before_write")
                self._write(header_bytes, *body.pieces)
                reach("log.append.before_fsync")
                if self._always:
                    self._sync_file()
                reach("log.append.after_fsync")
                end = after(self._end, header)
                self._stamp = stamp
                self._publish(end, end.offset, end.position if self._always else self._durable)
            except OSError as error:
                self._cut_back()
                if is_full(error):
                    raise disk_full_error(self._segment, error) from None
                raise
            except BaseException as interruption:
                # Readers may or may not have seen the frame: opening the partition again decides.
                self._broken = f"an append was interrupted by {type(interruption).__name__}"
                raise
            taken = range(first, end.offset)
            self._end, self._next = end, end.offset
            if end.is_far_from(self._indexed):
                self._index.add(end)
                self._indexed = end
            return taken

    def close(self) -> None:
        """Make everything durable, whatever the fsync mode, and unlock the partition."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            try:
                if self._broken is None:
                    self._sync()
                    self._head.sync()
            finally:
                for resource in (self._index, self._head, self._clock):
                    resource.close()
                os.close(self._fd)
                os.close(self._partition_lock)

    def __enter__(self) -> PartitionWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _open(self, found: RecoveredEnd | None, first_offset: int) -> None:
        self._stamp = last_stamp(self._directory)
        if found is None:
            self._next = first_offset
            self._head = HeadFile(self._directory)
            self._start_segment(first_offset)
        else:
            self._next = max(found.next_offset, first_offset)
            self.recovered = found.cut
            self._segment = segment_path(self._directory, found.base)
            self._base, self._end = found.base, found.end
            self._fd = os.open(self._segment, os.O_RDWR | os.O_CLOEXEC)
            # Frames that recovery kept may still be in memory only; they are published below as durable.
            os.fsync(self._fd)
            self._head = HeadFile(self._directory)
            self._index, self._indexed = open_index(self._segment, found.base, found.end)
            self._old_at = self._roll_deadline(self._index.created)
        self._durable = self._end.position
        self._publish(self._end, self._next, self._durable)
        self._head.sync()
        sync_directory(self._directory)

    def _start_segment(self, base: int) -> None:
        path = segment_path(self._directory, base)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            sync_directory(self._directory)
            index_path(path).unlink(missing_ok=True)
            index = IndexWriter(index_path(path), base)
        except BaseException:
            os.close(fd)
            # Appends continue in the old segment; a later one, even empty, would mean that the old one is closed.
            path.unlink()
            raise
        self._fd, self._segment, self._base, self._index = fd, path, base, index
        self._end = self._indexed = first_place(base)
        self._old_at = self._roll_deadline(index.created)
        self._durable = 0

    def _note_writer(self, first: int) -> None:
        """Note this writer in the lineage, not before the first record: a full disk must not keep the partition from
        opening. If this fails, nothing was written, and the next append tries again."""
        if self._is_noted:
            return
        try:
            note_writer(self._directory, first, segment_bases(self._directory)[0])
        except OSError as error:
            if is_full(error):
                raise disk_full_error(self._segment, error) from None
            raise
        self._is_noted = True

    def _is_time_to_roll(self, frame_bytes: int) -> bool:
        position = self._end.position
        if position == 0:
            return False
        too_large = position + frame_bytes > self._config.segment_bytes
        return too_large or time.monotonic() > self._old_at

    def _roll_deadline(self, created: float) -> float:
        """When to close the segment, by the monotonic clock. Its age so far comes from the wall clock; by one that was
        set back, it is new."""
        age = min(max(0.0, time.time() - created), self._config.segment_age)
        return time.monotonic() + self._config.segment_age - age

    def _roll(self) -> None:
        """Close the segment and start the next. If that fails the old one stays in use."""
        reach("log.roll")
        self._sync()
        if self.before_roll is not None:
            self.before_roll()
        self._index.add(self._end)
        old_fd, old_index = self._fd, self._index
        self._start_segment(self._end.offset)
        os.close(old_fd)
        old_index.close()
        self._publish(self._end, self._next, 0)

    def _write(self, *pieces: bytes | pa.Buffer) -> None:
        position = self._end.position
        views = [memoryview(piece) for piece in pieces]
        while views:
            written = os.pwritev(self._fd, views, position)
            position += written
            while views and written >= len(views[0]):
                written -= len(views.pop(0))
            if views:
                views[0] = views[0][written:]

    def _publish(self, end: Place, next_offset: int, durable: int) -> None:
        self._head.publish(Head(self._base, end.position, next_offset, durable, self._stamp))
        self._durable = durable

    def _sync(self) -> None:
        """Make durable what was appended so far, and say so in the head."""
        if self._durable < self._end.position:
            self._sync_file()
            self._publish(self._end, self._next, self._end.position)

    def _sync_file(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            # After a failed sync the kernel may have dropped pages: only what was synced before is certain.
            if not self._always or not is_full(error):
                self._broken = str(error)
            raise

    def _cut_back(self) -> None:
        try:
            os.ftruncate(self._fd, self._end.position)
            self._publish(self._end, self._next, self._durable)
        except OSError as error:
            self._broken = str(error)

    def _check_usable(self) -> None:
        if self._closed.is_set():
            raise LogError("PEN-LOG-006", f"the writer of partition {self.partition} is closed.", "Open it again.")
        if self._broken is not None:
            raise LogError(
                "PEN-LOG-006",
                f"{self._segment} takes no more appends after an error: {self._broken}.",
                "Check the disk, then restart: opening the partition again finds its last whole frame.",
            )

    def _sync_periodically(self, interval: float) -> None:
        while not self._closed.wait(interval):
            with self._lock:
                if self._closed.is_set() or self._broken is not None:
                    return
                try:
                    self._sync()
                except OSError:
                    return


def _check(batch: pa.RecordBatch) -> None:
    if not batch.schema.equals(ENTRY_SCHEMA) or any(batch.column(i).null_count for i in _REQUIRED):
        raise LogError(
            "PEN-LOG-009", "the batch does not have the log's entry schema.", "Build it with penstock.record.entries."
        )
