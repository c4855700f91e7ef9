"""The staged files of one table in one task.

A file is one Arrow batch with one header. Rows share a file up to ``FILE_ROWS``, as long as their columns agree:
columns may come and go, but one with another type starts the next file. Rows keep their order within a file and from
file to file.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from penstock.destinations.contract import Part
from penstock.destinations.sql.stage.file_header import encode, merge
from penstock.flatten.column import Column
from penstock.flatten.inner_types import InnerType

FILE_ROWS = 122_880
"""The size of DuckDB's row groups: one thread compresses a file of so many rows, without another copy."""


class TableWriter(Protocol):
    """An open file that takes tables of one schema (an Arrow or a Parquet writer)."""

    def write_table(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


CreateFile = Callable[[Path, pa.Schema], TableWriter]


def create_arrow_file(path: Path, schema: pa.Schema) -> TableWriter:
    # Not compressed: the file lives for one batch, and its loader maps it into memory instead of reading it.
    writer: TableWriter = pa.ipc.new_file(path, schema)
    return writer


class HeldRows(ABC):
    """Pieces of a table that are held back until they fill a file, or until ``flush``."""

    def __init__(self, directory: Path, table: str, create: CreateFile) -> None:
        self._directory = directory
        self._table = table
        self._create = create
        self._parts: list[Part] = []
        self._held: list[pa.Table] = []

    @property
    def held_bytes(self) -> int:
        return sum(piece.nbytes for piece in self._held)

    def flush(self) -> None:
        """Write the held rows as one file."""
        if not self._held:
            return
        rows = pa.concat_tables(self._held, promote_options="default").combine_chunks()
        path = self._directory / uuid.uuid4().hex
        writer = self._create(path, rows.schema)
        writer.write_table(rows)
        writer.close()
        self._parts.append(self._part(path, rows))
        self._held = []

    def finish(self) -> list[Part]:
        self.flush()
        return self._parts

    @abstractmethod
    def _part(self, path: Path, rows: pa.Table) -> Part:
        """Describe the file of these rows. The next rows get a header of their own."""


class TableFiles(HeldRows):
    """Takes pieces of a table, with their columns."""

    def __init__(self, directory: Path, table: str, create: CreateFile) -> None:
        super().__init__(directory, table, create)
        self._columns: dict[str, Column] = {}
        self._rows = 0
        self._place = (-1, -1)

    def append(self, rows: pa.Table, columns: Sequence[Column], places: pa.RecordBatch) -> None:
        """``columns`` is the header of ``rows``, which may have further columns; ``places`` are the places of the rows'
        records in the log."""
        if not self._takes(columns):
            self.flush()
        while self._rows + rows.num_rows >= FILE_ROWS:
            room = FILE_ROWS - self._rows
            self._hold(rows.slice(0, room), columns, places)
            self.flush()
            rows, places = rows.slice(room), places.slice(room)
        if rows.num_rows:
            self._hold(rows, columns, places)

    def _part(self, path: Path, rows: pa.Table) -> Part:
        part = Part(self._table, str(path), self._rows, *self._place, encode(list(self._columns.values())))
        self._columns, self._rows = {}, 0
        return part

    def _takes(self, columns: Sequence[Column]) -> bool:
        known = self._columns
        return all(_kept_as(known.get(column.name, column)) == _kept_as(column) for column in columns)

    def _hold(self, rows: pa.Table, columns: Sequence[Column], places: pa.RecordBatch) -> None:
        if not self._held:
            self._place = places.column(0)[0].as_py(), places.column(1)[0].as_py()
        for column in columns:
            known = self._columns.setdefault(column.name, column)
            if known.paths != column.paths:
                (self._columns[column.name],) = merge([[known], [column]])
        self._rows += rows.num_rows
        self._held.append(rows)


def _kept_as(column: Column) -> tuple[InnerType, str | None, bool]:
    return column.type, column.sql_type, column.json
