"""The staged files of one table in one task.

A file has one header. Rows share a file as long as their columns agree; a column that comes with another type, or a new
column after the file was begun, starts the next file. Rows keep their order within a file and from file to file.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from penstock.destinations.contract import Part
from penstock.destinations.sql.header import encode, merge
from penstock.flatten.column import Column
from penstock.flatten.types import InnerType

_LARGE_PIECE = 8_192
"""Rows."""


class TableWriter(Protocol):
    """An open file that takes tables of one schema (an Arrow or a Parquet writer)."""

    def write_table(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


CreateFile = Callable[[Path, pa.Schema], TableWriter]


def create_arrow_file(path: Path, schema: pa.Schema) -> TableWriter:
    # Not compressed: the file lives for one batch, and its loader maps it into memory instead of reading it.
    writer: TableWriter = pa.ipc.new_file(path, schema)
    return writer


class TableFiles:
    """Takes pieces of a table. They are held back until ``flush``, so that small ones are written as one."""

    def __init__(self, directory: Path, table: str, create: CreateFile) -> None:
        self._directory = directory
        self._table = table
        self._create = create
        self._parts: list[Part] = []
        self._current: _File | None = None

    @property
    def held_bytes(self) -> int:
        return sum(piece.nbytes for piece in self._current.held) if self._current else 0

    def append(self, rows: pa.Table, columns: Sequence[Column], partition: int, first_offset: int) -> None:
        """``columns`` is the header of ``rows``, which may have more columns than that (a row's place)."""
        if self._current is not None and not self._current.takes(columns):
            self._end()
        if self._current is None:
            self._current = _File(self._directory / uuid.uuid4().hex, self._create, partition, first_offset)
        self._current.append(rows, columns)

    def flush(self) -> None:
        if self._current is not None:
            self._current.flush()

    def finish(self) -> list[Part]:
        self._end()
        return self._parts

    def _end(self) -> None:
        if self._current is not None:
            self._parts.append(self._current.close(self._table))
            self._current = None


def _kept_as(column: Column) -> tuple[InnerType, str | None, bool]:
    return column.type, column.sql_type, column.json


class _File:
    """A file that is being filled. Its schema is open until the first flush."""

    def __init__(self, path: Path, create: CreateFile, partition: int, first_offset: int) -> None:
        self._path = path
        self._create = create
        self._place = partition, first_offset
        self._columns: dict[str, Column] = {}
        self._rows = 0
        self._begun: tuple[pa.Schema, TableWriter] | None = None
        self.held: list[pa.Table] = []

    def takes(self, columns: Sequence[Column]) -> bool:
        for column in columns:
            known = self._columns.get(column.name)
            if known is None and self._begun:
                return False
            if known is not None and _kept_as(known) != _kept_as(column):
                return False
        return True

    def append(self, rows: pa.Table, columns: Sequence[Column]) -> None:
        for column in columns:
            known = self._columns.setdefault(column.name, column)
            if known.paths != column.paths:
                (self._columns[column.name],) = merge([[known], [column]])
        self._rows += rows.num_rows
        self.held.append(rows)

    def flush(self) -> None:
        if not self.held:
            return
        if self._begun is None:
            rows = pa.concat_tables(self.held, promote_options="default")
            self._begun = rows.schema, self._create(self._path, rows.schema)
        else:
            rows = pa.concat_tables([self._begun[0].empty_table(), *self.held], promote_options="default")
        # Small pieces become one. Large ones are written as they are: the copy would cost more than it saves.
        small = rows.num_rows < _LARGE_PIECE * len(self.held)
        self._begun[1].write_table(rows.combine_chunks() if small else rows)
        self.held.clear()

    def close(self, table: str) -> Part:
        self.flush()
        if self._begun is not None:
            self._begun[1].close()
        return Part(table, str(self._path), self._rows, *self._place, encode(list(self._columns.values())))
