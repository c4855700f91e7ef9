"""Rows as COPY reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from pyarrow import csv

from penstock.destinations.sql.load.prefetch import prefetch_converted

_ROWS_AT_A_TIME = 4_096
_OPTIONS = csv.WriteOptions(include_header=False, batch_size=_ROWS_AT_A_TIME)


def copy_rows(
    cursor: psycopg.Cursor[tuple[object, ...]],
    relation: str,
    names: str,
    reader: pa.RecordBatchReader,
    by: Sequence[str] = (),
) -> tuple[int, int]:
    """Copy rows into these columns of a relation; returns how many rows were given to the database, and how many it
    says it has kept."""
    counted = CountedRows(reader)
    with cursor.copy(plain(f"COPY {relation} ({names}) FROM STDIN (FORMAT csv)")) as copy:
        for text in csv_pieces(counted.reader, by):
            copy.write(text)
    return counted.rows, cursor.rowcount


def plain(statement: str) -> sql.SQL:
    """A statement whose names were quoted by the dialect, and whose values are parameters that are added after it."""
    return sql.SQL(statement.replace("%", "%%"))


def csv_pieces(reader: pa.RecordBatchReader, by: Sequence[str] = ()) -> Iterator[memoryview]:
    """CSV, piece by piece: text is quoted, and a null is nothing between two commas.

    The rows of each batch are sorted by the columns ``by``, which makes inserting into an index much faster.
    """
    keys = [(name, "ascending") for name in by if name in reader.schema.names]
    return prefetch_converted(_text, _slices(reader, keys))


class CountedRows:
    """Rows that are counted as they are read."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self.rows = 0
        self.reader = pa.RecordBatchReader.from_batches(reader.schema, map(self._count, reader))

    def _count(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.rows += batch.num_rows
        return batch


def with_columns(reader: pa.RecordBatchReader, columns: Sequence[str]) -> pa.RecordBatchReader:
    """The same rows with all of these columns, null where they lack one."""
    missing = [name for name in columns if name not in reader.schema.names]
    if not missing:
        return reader
    schema = pa.schema([*reader.schema, *(pa.field(name, pa.string()) for name in missing)])

    def whole(rows: pa.RecordBatch) -> pa.RecordBatch:
        nulls = [pa.nulls(rows.num_rows, pa.string())] * len(missing)
        return pa.RecordBatch.from_arrays([*rows.columns, *nulls], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, map(whole, reader))


def _slices(reader: pa.RecordBatchReader, keys: Sequence[tuple[str, str]]) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        rows = batch.take(pc.sort_indices(batch, sort_keys=keys)) if keys else batch
        for start in range(0, rows.num_rows, _ROWS_AT_A_TIME):
            yield rows.slice(start, _ROWS_AT_A_TIME)


def _text(rows: pa.RecordBatch) -> memoryview:
    sink = pa.BufferOutputStream()
    csv.write_csv(rows, sink, _OPTIONS)
    return memoryview(sink.getvalue())
