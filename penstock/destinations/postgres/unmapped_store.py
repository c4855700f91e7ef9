"""What a PostgreSQL table keeps in ``_unmapped``: read through a cursor, written back by COPY and one UPDATE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import psycopg
import pyarrow as pa

from penstock.destinations.postgres.copy_rows import copy_rows
from penstock.destinations.postgres.dialect import PostgresDialect
from penstock.destinations.sql.schema.schema_operations import Table
from penstock.destinations.sql.unmapped.unmapped_store import REMAPPED, ROW, UnmappedStore, update_statement
from penstock.flatten.unmapped.unmapped_column import UNMAPPED

_ROWS_AT_A_TIME = 10_000


class PostgresUnmappedStore(UnmappedStore):
    row_id = "ctid"

    def __init__(self, connection: psycopg.Connection[tuple[object, ...]], dialect: PostgresDialect) -> None:
        self._connection = connection
        self._dialect = dialect

    def rows(self, table: Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        spare = self._dialect.identifier(UNMAPPED)
        flags = "".join(f", {self._dialect.identifier(table.columns[name].name)} IS NULL" for name in columns)
        schema = _schema(columns)
        with closing(self._connection.cursor("penstock_kept")) as cursor:
            cursor.execute(
                f"SELECT ctid::text, {spare}::text{flags} FROM {self._dialect.relation(table.name)}"
                f" WHERE {spare} IS NOT NULL".encode()
            )
            while found := cursor.fetchmany(_ROWS_AT_A_TIME):
                columns_of = zip(*found, strict=True)
                arrays = [pa.array(values, kind) for values, kind in zip(columns_of, schema.types, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def run_ddl(self, statements: Sequence[str]) -> None:
        for statement in statements:
            self._connection.execute(statement.encode())

    def write_back(self, table: Table, columns: Sequence[str], rows: Iterator[pa.RecordBatch]) -> None:
        real = [table.columns[name].name for name in (*columns, UNMAPPED)]
        staged = self._dialect.identifier(REMAPPED)
        names = self._dialect.names([ROW, *real])
        self._connection.execute(
            f"CREATE TEMPORARY TABLE {staged} ON COMMIT DROP AS SELECT ctid AS {self._dialect.identifier(ROW)},"
            f" {self._dialect.names(real)} FROM {self._dialect.relation(table.name)} WITH NO DATA".encode()
        )
        with self._connection.cursor() as cursor:
            for batch in rows:
                copy_rows(cursor, staged, names, pa.RecordBatchReader.from_batches(batch.schema, [batch]))
            cursor.execute(f"ANALYZE {staged}".encode())
            cursor.execute(update_statement(self._dialect, table, columns, self.row_id).encode())


def _schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema(
        [pa.field(ROW, pa.string()), pa.field(UNMAPPED, pa.string()), *(pa.field(name, pa.bool_()) for name in columns)]
    )
