"""Staged files into one table, inside an open transaction: patch the table, then insert file by file.

Where the table has another type than the file, a value goes in if it can be converted without loss; otherwise the
column is NULL and the value as it was goes into ``_unmapped``. No row is held back for its types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from penstock.destinations.contract import Part
from penstock.destinations.duckdb.conversion import Conversion, convert, original
from penstock.destinations.duckdb.dialect import DUCKDB
from penstock.destinations.sql.header import decode, merge
from penstock.destinations.sql.operations import AddColumn, TypedColumn, patch
from penstock.flatten.column import Column
from penstock.flatten.unmapped import UNMAPPED

_STAGED = "_penstock_staged"


def load_table(connection: duckdb.DuckDBPyConnection, table: str, parts: Sequence[Part]) -> None:
    """Insert the parts, in the order given, into ``table``, which is made or given columns as they need."""
    headers = [decode(part.header) for part in parts]
    wanted = [DUCKDB.column(column) for column in merge(headers)]
    # Asking a freshly opened file whether it has a table takes ten times as long as making one that is there already.
    for operation in patch(table, wanted, existing=None):
        connection.execute(DUCKDB.render(operation))
    types = real_types(connection, table)
    for operation in patch(table, wanted, types):
        connection.execute(DUCKDB.render(operation))
        types = real_types(connection, table)
    for part, header in zip(parts, headers, strict=True):
        with pa.memory_map(part.path) as file, pa.ipc.open_file(file) as reader:
            insert = Insert(table, header, reader.schema, types)
            if insert.lost and UNMAPPED not in types and _loses_any(connection, reader, insert):
                connection.execute(DUCKDB.render(AddColumn(table, TypedColumn(UNMAPPED, DUCKDB.json_type))))
                types[UNMAPPED] = DUCKDB.json_type
            with _staged(connection, reader):
                connection.execute(insert.statement())


def real_types(connection: duckdb.DuckDBPyConnection, table: str) -> dict[str, str]:
    """The types of a table that is there, by column name in lower case."""
    rows = connection.execute("SELECT lower(name), type FROM pragma_table_info(?)", [DUCKDB.identifier(table)])
    return dict(rows.fetchall())


class Insert:
    """The statement that takes one staged file into a table that has (at least) the file's columns."""

    def __init__(self, table: str, header: Sequence[Column], staged: pa.Schema, types: Mapping[str, str]) -> None:
        self._table = table
        self._types = types
        self._brings_unmapped = any(column.name == UNMAPPED for column in header)
        self._sources = {
            column.name: _source_type(column, staged.field(column.name).type)
            for column in header
            if column.name != UNMAPPED
        }
        self._conversions = {column.name: self._conversion(column) for column in header if column.name in self._sources}
        self.lost = {name: found.lost for name, found in self._conversions.items() if found.lost is not None}
        """Per column that can lose a value, the condition under which it does."""

    @property
    def any_lost(self) -> str:
        return " OR ".join(self.lost.values())

    def statement(self) -> str:
        values = {name: conversion.value for name, conversion in self._conversions.items()}
        if self._brings_unmapped or (self.lost and UNMAPPED in self._types):
            values[UNMAPPED] = self._unmapped()
        columns = ", ".join(map(DUCKDB.identifier, values))
        return (
            f"INSERT INTO {DUCKDB.identifier(self._table)} ({columns})"
            f" SELECT {', '.join(values.values())} FROM {_STAGED}"
        )

    def _conversion(self, column: Column) -> Conversion:
        target = self._types[column.name]
        asked = column.sql_type is not None and DUCKDB.cast_type(column.sql_type) == target
        return convert(DUCKDB.identifier(column.name), self._sources[column.name], target, asked)

    def _unmapped(self) -> str:
        staged = DUCKDB.identifier(UNMAPPED)
        # JSON that DuckDB cannot read (half a surrogate pair) is kept as text.
        brought = (
            f"CASE WHEN {staged} IS NOT NULL THEN COALESCE(TRY_CAST({staged} AS JSON), json_object('', {staged})) END"
        )
        if not self._brings_unmapped:
            brought = "CAST(NULL AS JSON)"
        if not self.lost:
            return brought
        members = ", ".join(
            f"{_literal(name)}, CASE WHEN {lost} THEN {original(DUCKDB.identifier(name), self._sources[name])} END"
            for name, lost in self.lost.items()
        )
        # A merge patch takes away members that are null. Here those are the columns that lost nothing; what the file
        # brought may have the same names and must stay, so the first patch is on an empty object.
        lost = f"json_merge_patch('{{}}', json_object({members}))"
        merged = f"json_merge_patch(COALESCE({brought}, '{{}}'), {lost})"
        return f"CASE WHEN {self.any_lost} THEN {merged} ELSE {brought} END"


def _source_type(column: Column, staged: pa.DataType) -> str:
    if pa.types.is_decimal(staged):
        return f"DECIMAL({staged.precision},{staged.scale})"
    return DUCKDB.types[column.type]


def _loses_any(connection: duckdb.DuckDBPyConnection, reader: pa.ipc.RecordBatchFileReader, insert: Insert) -> bool:
    with _staged(connection, reader):
        return bool(connection.execute(f"SELECT 1 FROM {_STAGED} WHERE {insert.any_lost} LIMIT 1").fetchall())


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@contextmanager
def _staged(connection: duckdb.DuckDBPyConnection, reader: pa.ipc.RecordBatchFileReader) -> Iterator[None]:
    """The file's rows as the relation ``_STAGED``, read batch by batch as DuckDB asks for them."""
    batches = (reader.get_batch(place) for place in range(reader.num_record_batches))
    connection.register(_STAGED, pa.RecordBatchReader.from_batches(reader.schema, batches))
    yield
    # Not after an error: the aborted transaction would refuse this too, and hide why. The connection is closed then.
    connection.unregister(_STAGED)
