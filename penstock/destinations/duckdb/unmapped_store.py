"""What a DuckDB table keeps in ``_unmapped``: read in pieces, written back by one UPDATE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb
import pyarrow as pa

from penstock.destinations.duckdb.dialect import DUCKDB
from penstock.destinations.duckdb.mirror_applier import create_staging_table
from penstock.destinations.sql.schema.schema_operations import Table
from penstock.destinations.sql.unmapped.unmapped_store import REMAPPED, ROW, UnmappedStore, update_statement
from penstock.flatten.unmapped.unmapped_column import UNMAPPED

_KEPT = "_penstock_kept"
_PLACE = '"@place"'
_RUN = "_penstock_run"
_ROWS_AT_A_TIME = 100_000


class DuckdbUnmappedStore(UnmappedStore):
    row_id = "rowid"

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def rows(self, table: Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """A connection has one result at a time, so the rows are copied aside first and read piece by piece."""
        spare = DUCKDB.identifier(table.columns[UNMAPPED].name)
        flags = "".join(
            f", {DUCKDB.identifier(table.columns[name].name)} IS NULL AS {DUCKDB.identifier(name)}" for name in columns
        )
        self._connection.execute(
            f"CREATE OR REPLACE TEMP TABLE {_KEPT} AS SELECT row_number() OVER () AS {_PLACE},"
            f" rowid AS {DUCKDB.identifier(ROW)},"
            f" CAST({spare} AS VARCHAR) AS {DUCKDB.identifier(UNMAPPED)}{flags}"
            f" FROM {DUCKDB.relation(table.name)} WHERE {spare} IS NOT NULL"
        )
        count = self._connection.execute(f"SELECT count(*) FROM {_KEPT}").fetchall()[0][0]
        for start in range(0, count, _ROWS_AT_A_TIME):
            # Own numbers, because the row ids of an uncommitted table do not start at zero.
            piece = (
                f"SELECT * EXCLUDE {_PLACE} FROM {_KEPT}"
                f" WHERE {_PLACE} > {start} AND {_PLACE} <= {start + _ROWS_AT_A_TIME}"
            )
            yield from list(self._connection.sql(piece).to_arrow_reader(_ROWS_AT_A_TIME))
        self._connection.execute(f"DROP TABLE {_KEPT}")

    def run_ddl(self, statements: Sequence[str]) -> None:
        for statement in statements:
            self._connection.execute(statement)

    def write_back(self, table: Table, columns: Sequence[str], rows: Iterator[pa.RecordBatch]) -> None:
        real = DUCKDB.real_names(table, (*columns, UNMAPPED))
        shape = f"rowid AS {DUCKDB.identifier(ROW)}, {real}"
        create_staging_table(self._connection, REMAPPED, shape, DUCKDB.relation(table.name))
        for batch in rows:
            self._connection.register(_RUN, pa.Table.from_batches([batch]))
            self._connection.execute(f"INSERT INTO {REMAPPED} SELECT * FROM {_RUN}")
            self._connection.unregister(_RUN)
        self._connection.execute(update_statement(DUCKDB, table, columns, self.row_id))
        self._connection.execute(f"DROP TABLE {REMAPPED}")
