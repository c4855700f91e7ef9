"""Copies tables into the log: several connections read, in one snapshot; one thread, the caller's, writes.

Tables are copied one after the other, the ranges of a table in parallel, so a crash leaves few tables half copied. When
the last range of a table is in the log, an entry says that it is complete. A copy begins with a truncate, so that
earlier entries are void. If the log has none, it says that too: only what a target has from another log is void then.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, Full, Queue
from threading import Event, Thread

from penstock import faults
from penstock.log.format.frame import Body
from penstock.sources.postgres.catalog.table_layout import Layout, Packed, pack
from penstock.sources.postgres.config import PostgresConfig
from penstock.sources.postgres.connection import translate_errors
from penstock.sources.postgres.copy.copy_blocks import Stopped
from penstock.sources.postgres.copy.page_range import Range, RangeReader, TableChanged
from penstock.sources.postgres.log_sink import Sink
from penstock.sources.postgres.progress import SourceProgress
from penstock.sources.postgres.rows.row_entries import complete_entry, truncate_entry
from penstock.sources.postgres.stream.slot import Snapshot
from penstock.sources.postgres.stream_position import copy_position

POLL_SECONDS = 0.2
_PREFETCH = 2
"""How many prepared frames each reader may have waiting."""

_log = logging.getLogger("penstock.postgres")


@dataclass
class TableCopy:
    layout: Layout
    ranges: Sequence[Range]
    membership: str = ""
    """What made the table published before the snapshot was taken."""
    packed: Packed = field(init=False)
    left: int = field(init=False)
    """Ranges that are not in the log yet."""
    begun: bool = False
    moved: bool = False
    """The table changed, and the snapshot can no longer read it."""
    rows: int = 0

    def __post_init__(self) -> None:
        self.packed = pack([self.layout])
        self.left = len(self.ranges)


@dataclass(frozen=True)
class _ReaderMessage:
    """From a reader thread: rows, or (without rows) the end of a range, good or bad."""

    copy: TableCopy
    rows: Body | None = None
    error: Exception | None = None


class Copier:
    """Copies tables in one snapshot, once."""

    def __init__(
        self, config: PostgresConfig, snapshot: Snapshot, progress: SourceProgress, sink: Sink, stopping: Event
    ) -> None:
        self._config = config
        self._snapshot = snapshot
        self._progress = progress
        self._sink = sink
        self._stopping = stopping
        self._cancelled = Event()
        self._steps: Queue[_ReaderMessage] = Queue(config.workers * _PREFETCH)
        self._work: deque[tuple[TableCopy, Range]] = deque()

    def run(self, copies: Sequence[TableCopy], completed: Callable[[], None]) -> list[TableCopy]:
        """Copy the tables; returns those that this snapshot can no longer read.

        ``completed`` is called after each table. Raises ``ServerUnavailable`` or ``Stopped``, which end the copy.
        """
        self._work.extend((copy, part) for copy in copies for part in copy.ranges)
        left = len(self._work)
        readers = [
            Thread(target=self._run_reader, name=f"copy-{number}", daemon=True)
            for number in range(min(self._config.workers, left))
        ]
        for reader in readers:
            reader.start()
        try:
            for copy in copies:
                if not copy.ranges:  # partitioned, without a partition
                    self._begin(copy)
                    self._finish(copy)
                    completed()
            while left:
                step = self._next()
                left -= step.rows is None
                if self._append(step):
                    completed()
        finally:
            self._cancelled.set()
            for reader in readers:
                reader.join()
        return [copy for copy in copies if copy.moved]

    def _next(self) -> _ReaderMessage:
        while not self._stopping.is_set():
            try:
                return self._steps.get(timeout=POLL_SECONDS)
            except Empty:
                continue
        raise Stopped

    def _append(self, step: _ReaderMessage) -> bool:
        """Append what a reader sent to the log; returns whether that completed a table."""
        copy = step.copy
        if isinstance(step.error, TableChanged):
            copy.moved = True
            _log.warning("%s is copied with another snapshot: %s", copy.layout.namespace, step.error)
            return False
        if step.error is not None:
            raise step.error
        if not copy.begun:
            self._begin(copy)
        if step.rows is not None:
            self._sink.write(step.rows)
            copy.rows += step.rows.records
            faults.reach("postgres.copy.written")
            return False
        copy.left -= 1
        if copy.left or copy.moved:
            return False
        self._finish(copy)
        return True

    def _begin(self, copy: TableCopy) -> None:
        first = not self._progress.may_have_entries(copy.layout.namespace)
        self._sink.append(truncate_entry(copy.layout, self._position(copy), first))
        copy.begun = True
        self._progress.note_copy(copy.layout, self._snapshot.lsn, False, copy.membership)

    def _finish(self, copy: TableCopy) -> None:
        faults.reach("postgres.copy.whole")
        self._sink.append(complete_entry(copy.layout, self._position(copy), copy.rows))
        self._progress.note_copy(copy.layout, self._snapshot.lsn, True, copy.membership)
        faults.reach("postgres.copy.complete")
        _log.info("copied %s: %d rows", copy.layout.namespace, copy.rows)

    def _position(self, copy: TableCopy) -> str:
        return copy_position(self._progress.slot, copy.layout.oid, self._snapshot.lsn)

    def _run_reader(self) -> None:
        """A reader thread: reads range after range, and sends rows and errors to the writer."""
        reader = RangeReader(self._config, self._snapshot, self._cancelled)
        try:
            while not self._cancelled.is_set():
                try:
                    copy, part = self._work.popleft()
                except IndexError:
                    return
                self._send(_ReaderMessage(copy, error=self._read_range(reader, copy, part)))
        except Stopped:
            return
        finally:
            reader.close()

    def _read_range(self, reader: RangeReader, copy: TableCopy, part: Range) -> Exception | None:
        if copy.moved:
            return TableChanged("another part of it was")
        try:
            with translate_errors():
                for batch in reader.read(part, copy.layout, copy.packed):
                    self._send(_ReaderMessage(copy, self._sink.prepare(batch)))
        except Stopped:
            raise
        except Exception as error:
            return error
        return None

    def _send(self, step: _ReaderMessage) -> None:
        while not self._cancelled.is_set():
            try:
                return self._steps.put(step, timeout=POLL_SECONDS)
            except Full:
                continue
        raise Stopped
