"""Copying tables into the log: several connections read, in one snapshot; one thread, the caller's, writes.

Tables come one after the other, their ranges side by side, so a crash finds few tables half copied. When the last range
of a table is in the log, an entry says that it is complete. A table of which the log has something already is begun
with a truncate: what came before is void.
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
from penstock.sources.postgres.config import PostgresSourceConfig
from penstock.sources.postgres.connection import explaining
from penstock.sources.postgres.copy.copy_blocks import Stopped
from penstock.sources.postgres.copy.page_range import Moved, Range, RangeReader
from penstock.sources.postgres.log_sink import Sink
from penstock.sources.postgres.progress import Book
from penstock.sources.postgres.rows.row_entries import complete_entry, truncate_entry
from penstock.sources.postgres.stream.slot import Snapshot
from penstock.sources.postgres.stream_position import copy_position

POLL_SECONDS = 0.2
_AHEAD = 2
"""Prepared frames that each reader may have waiting."""

_log = logging.getLogger("penstock.postgres")


@dataclass
class TableCopy:
    """One table on its way into the log."""

    layout: Layout
    ranges: Sequence[Range]
    packed: Packed = field(init=False)
    left: int = field(init=False)
    """Ranges that are not in the log yet."""
    begun: bool = False
    moved: bool = False
    """The snapshot no longer speaks of it."""
    rows: int = 0

    def __post_init__(self) -> None:
        self.packed = pack([self.layout])
        self.left = len(self.ranges)


@dataclass(frozen=True)
class _Step:
    """Word from a reader: rows, or (without any) the end of a range, good or bad."""

    copy: TableCopy
    rows: Body | None = None
    error: Exception | None = None


class Copier:
    """Copies tables in one snapshot, once."""

    def __init__(
        self, config: PostgresSourceConfig, snapshot: Snapshot, book: Book, sink: Sink, stopping: Event
    ) -> None:
        self._config = config
        self._snapshot = snapshot
        self._book = book
        self._sink = sink
        self._stopping = stopping
        self._cancelled = Event()
        self._steps: Queue[_Step] = Queue(config.workers * _AHEAD)
        self._work: deque[tuple[TableCopy, Range]] = deque()

    def run(self, copies: Sequence[TableCopy], completed: Callable[[], None]) -> list[TableCopy]:
        """Copy the tables; those that this snapshot cannot give any more are returned.

        ``completed`` is called whenever a table is. Raises what stops the whole: ``ServerAway``, ``Stopped``.
        """
        self._work.extend((copy, part) for copy in copies for part in copy.ranges)
        left = len(self._work)
        readers = [
            Thread(target=self._read, name=f"copy-{number}", daemon=True)
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
                if self._take(step):
                    completed()
        finally:
            self._cancelled.set()
            for reader in readers:
                reader.join()
        return [copy for copy in copies if copy.moved]

    def _next(self) -> _Step:
        while not self._stopping.is_set():
            try:
                return self._steps.get(timeout=POLL_SECONDS)
            except Empty:
                continue
        raise Stopped

    def _take(self, step: _Step) -> bool:
        """Put what a reader has into the log; whether that made a table complete."""
        copy = step.copy
        if isinstance(step.error, Moved):
            copy.moved = True
            _log.warning("%s is copied with another snapshot: %s", copy.layout.namespace, step.error)
            return False
        if step.error is not None:
            raise step.error
        if not copy.begun:
            self._begin(copy)
        if step.rows is not None:
            self._sink.put(step.rows)
            copy.rows += step.rows.records
            faults.reach("postgres.copy.written")
            return False
        copy.left -= 1
        if copy.left or copy.moved:
            return False
        self._finish(copy)
        return True

    def _begin(self, copy: TableCopy) -> None:
        if self._book.has_any(copy.layout.namespace):
            self._sink.append(truncate_entry(copy.layout, self._position(copy)))
        copy.begun = True
        self._book.note_copy(copy.layout, self._snapshot.lsn, complete=False)

    def _finish(self, copy: TableCopy) -> None:
        faults.reach("postgres.copy.whole")
        self._sink.append(complete_entry(copy.layout, self._position(copy), copy.rows))
        self._book.note_copy(copy.layout, self._snapshot.lsn, complete=True)
        faults.reach("postgres.copy.complete")
        _log.info("copied %s: %d rows", copy.layout.namespace, copy.rows)

    def _position(self, copy: TableCopy) -> str:
        return copy_position(self._book.slot, copy.layout.oid, self._snapshot.lsn)

    def _read(self) -> None:
        """A reader's thread: range after range until there are none. Whatever happens is told."""
        reader = RangeReader(self._config, self._snapshot, self._cancelled)
        try:
            while not self._cancelled.is_set():
                try:
                    copy, part = self._work.popleft()
                except IndexError:
                    return
                self._tell(_Step(copy, error=self._read_range(reader, copy, part)))
        except Stopped:
            return
        finally:
            reader.close()

    def _read_range(self, reader: RangeReader, copy: TableCopy, part: Range) -> Exception | None:
        if copy.moved:
            return Moved("another part of it was")
        try:
            with explaining():
                for batch in reader.read(part, copy.layout, copy.packed):
                    self._tell(_Step(copy, self._sink.prepare(batch)))
        except Stopped:
            raise
        except Exception as error:
            return error
        return None

    def _tell(self, step: _Step) -> None:
        while not self._cancelled.is_set():
            try:
                return self._steps.put(step, timeout=POLL_SECONDS)
            except Full:
                continue
        raise Stopped
