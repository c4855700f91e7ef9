"""One part of a table's copy: a range of its pages, read in a snapshot, as entries for the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event

import numpy as np
import psycopg
import pyarrow as pa

from penstock.sources.postgres.catalog.table_catalog import LeafTable, quoted
from penstock.sources.postgres.catalog.table_layout import Layout, Packed
from penstock.sources.postgres.config import PostgresConfig
from penstock.sources.postgres.connection import TRIED_AGAIN, Connection, ServerUnavailable, connect
from penstock.sources.postgres.copy.copy_blocks import Block, Stopped, read_blocks
from penstock.sources.postgres.copy.copy_text import cut
from penstock.sources.postgres.rows.row_entries import LARGEST_ROW, fitting, row_entries, too_large
from penstock.sources.postgres.rows.row_fields import Fields
from penstock.sources.postgres.rows.row_json import Rows, data_of, keys_of, keys_only
from penstock.sources.postgres.rows.scratch import Scratch
from penstock.sources.postgres.stream.slot import Snapshot
from penstock.sources.postgres.stream_position import copy_position

RANGE_PAGES = 16_384
LOCK_SECONDS = 2
LARGE_PAGES = 512
"""From this size on, reading past the driver is worth a connection of its own."""

_log = logging.getLogger("penstock.postgres")


class TableChanged(Exception):
    """The table was rewritten or altered after the snapshot: it must be copied with a new one."""


@dataclass(frozen=True)
class Range:
    """The pages ``first`` up to, not including, ``last`` of a table; without a ``last``, to its end."""

    stretch: LeafTable
    first: int
    last: int | None
    row_filter: str | None = None

    @property
    def is_large(self) -> bool:
        return self.last is not None or self.stretch.pages - self.first >= LARGE_PAGES

    def statement(self, layout: Layout) -> bytes:
        columns = ", ".join(quoted(column.name) for column in layout.columns)
        bounds = [f"ctid >= '({self.first},0)'"] if self.first else []
        bounds += [f"ctid < '({self.last},0)'"] if self.last is not None else []
        bounds += [f"({self.row_filter})"] if self.row_filter else []
        where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
        return f"COPY (SELECT {columns} FROM ONLY {self.stretch.relation}{where}) TO STDOUT".encode()


def ranges(stretch: LeafTable, row_filter: str | None) -> list[Range]:
    """A table in ranges. The last one is open: it may have grown between its size and the snapshot."""
    firsts = range(0, max(stretch.pages, 1), RANGE_PAGES)
    return [Range(stretch, first, first + RANGE_PAGES if first != firsts[-1] else None, row_filter) for first in firsts]


class RangeReader:
    """Reads ranges one after the other, in one thread; must be closed. Raises the driver's errors and ours."""

    def __init__(self, config: PostgresConfig, snapshot: Snapshot, stopping: Event) -> None:
        self._config = config
        self._snapshot = snapshot
        self._stopping = stopping
        self._scratch = Scratch()
        self._connection: Connection | None = None

    def read(self, wanted: Range, layout: Layout, packed: Packed) -> Iterator[pa.RecordBatch]:
        """The rows as entries. A batch is valid until the next one is read. Raises ``TableChanged``."""
        if self._connection is None:
            self._connection = connect(self._config)
        connection = self._connection
        position = copy_position(self._config.slot, layout.oid, self._snapshot.lsn)
        try:
            self._enter(connection, wanted)
            for block in read_blocks(
                connection, wanted.statement(layout), self._scratch, self._stopping, wanted.is_large
            ):
                yield from fitting(self._entries(block, layout, packed, position))
        except BaseException as error:
            self.close()
            if isinstance(error, psycopg.errors.UndefinedColumn | psycopg.errors.UndefinedTable):
                raise TableChanged(str(error)) from error
            raise
        if wanted.is_large:
            self.close()
        else:
            connection.execute("COMMIT")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _enter(self, connection: Connection, wanted: Range) -> None:
        """Begin a transaction in the snapshot, and check that the snapshot can still read the table.

        A table that was rewritten since (TRUNCATE, ALTER .. TYPE) looks empty in an older snapshot. While we hold the
        lock it cannot change, and the catalog as of the snapshot must name the file that exists now.
        """
        while not self._lock_table(connection, wanted.stretch.relation):
            _log.warning("%s is locked by somebody; its copy waits", wanted.stretch.relation)
            if self._stopping.is_set():
                raise Stopped
        row = connection.execute(_SAME_FILE, (wanted.stretch.oid, wanted.stretch.relation)).fetchone()
        if row is None or not row[0]:
            raise TableChanged(f"{wanted.stretch.relation} was rewritten")

    def _lock_table(self, connection: Connection, relation: str) -> bool:
        """Begin a transaction in the snapshot and lock the table against rewrites; False if others have it locked."""
        if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            connection.execute("ROLLBACK")
        connection.execute("BEGIN")
        self._snapshot.enter(connection)
        connection.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'".encode())
        try:
            connection.execute(f"LOCK TABLE ONLY {relation} IN ACCESS SHARE MODE".encode())
        except psycopg.errors.LockNotAvailable:
            return False
        return True

    def _entries(self, block: Block, layout: Layout, packed: Packed, position: str) -> pa.RecordBatch:
        columns = len(layout.columns)
        starts = self._scratch.int32("starts", block.rows * columns)
        ends = self._scratch.int32("ends", block.rows * columns)
        if cut(block.text, block.size, columns, starts, ends) != block.rows:
            raise ServerUnavailable("PEN-PGS-015", f"rows of {layout.namespace} are not in COPY's format.", TRIED_AGAIN)
        rows = Rows(np.zeros(block.rows, np.int32), np.arange(block.rows, dtype=np.int64) * columns)
        text = block.text[: block.size]
        # As the text of changes: one compiled function for both.
        text.flags.writeable = False
        fields = Fields(text, starts, ends)
        if block.size > LARGEST_ROW:  # a single row
            keys = keys_of(rows, keys_only([rows], fields, packed), packed, self._scratch)
            return too_large(row_entries(keys, keys if layout.key else None, layout, position), block.size)
        keyed = keys_of(rows, fields, packed, self._scratch) if layout.key else None
        return row_entries(data_of(rows, fields, packed, self._scratch), keyed, layout, position)


_SAME_FILE = """
SELECT c.relfilenode = pg_relation_filenode(c.oid) AND c.oid = %s::int8 FROM pg_class c WHERE c.oid = %s::regclass"""
