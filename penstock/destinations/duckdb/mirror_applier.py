"""Applies changes to a table of a DuckDB file, in one transaction.

Incoming rows replace existing ones: deleting a row and inserting another is the fastest way to change it here. A failed
statement ends the whole transaction, which then starts over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import duckdb
import pyarrow as pa

from penstock import faults
from penstock.destinations.duckdb.dialect import DUCKDB
from penstock.destinations.sql.load.prefetch import prefetch
from penstock.destinations.sql.marks import Mark
from penstock.destinations.sql.mirror import mirror_statements
from penstock.destinations.sql.mirror.applier import MirrorTransaction, RowsNotFound
from penstock.destinations.sql.mirror.mirror_statements import EqualRows
from penstock.destinations.sql.mirror.row_changes import Changes
from penstock.errors import RefusedError, TransientError

COMING, GOING, CHOSEN = "_penstock_coming", "_penstock_going", "_penstock_chosen"
_RUN = "_penstock_run"


class DuckdbMirrorTransaction(MirrorTransaction):
    whole_rows = True
    starts_over = True

    def __init__(self, connection: duckdb.DuckDBPyConnection, write_mark: Callable[[Mark], None]) -> None:
        self._connection = connection
        self._write_mark = write_mark

    def apply(self, changes: Changes) -> None:
        try:
            self._apply(changes)
        except RowsNotFound:
            self._start_over()
            raise
        except (duckdb.DataError, duckdb.IntegrityError) as error:
            self._start_over()
            raise RefusedError(
                "PEN-DST-024", f"DuckDB says: {line(error)}", "Fix the value or the table, then: penstock failed replay"
            ) from error
        except duckdb.ProgrammingError as error:
            # It is not the rows: what has the table's name (a view, say) accepts none at all.
            raise TransientError(
                "PEN-DST-023", f"DuckDB says: {line(error)}", "Fix the table; the batch is tried again."
            ) from error

    def write_mark(self, mark: Mark) -> None:
        self._write_mark(mark)
        faults.reach("destination.writing")

    def _start_over(self) -> None:
        self._connection.execute("ROLLBACK")
        self._connection.execute("BEGIN")

    def _apply(self, changes: Changes) -> None:
        run = self._connection.execute
        table = DUCKDB.relation(changes.table.name)
        if changes.truncates:
            run(f"DELETE FROM {table}")
        if changes.count:
            self._stage(COMING, mirror_statements.coming_columns(DUCKDB, changes), table, changes.come())
        if changes.fills:
            for statement in mirror_statements.fill_gaps(DUCKDB, changes, COMING):
                run(statement)
        if changes.gone.num_rows:
            self._stage(GOING, mirror_statements.gone_columns(DUCKDB, changes), table, iter(changes.gone.to_batches()))
            if changes.key:
                run(mirror_statements.delete(DUCKDB, changes, GOING))
            else:
                self._delete_equals(changes)
            run(f"DROP TABLE {GOING}")
        if changes.count:
            if changes.key:
                run(mirror_statements.delete(DUCKDB, changes, COMING))
            for columns, rows in mirror_statements.insert_selects(DUCKDB, changes, COMING):
                run(f"INSERT INTO {table} ({DUCKDB.real_names(changes.table, columns)}) {rows}")
            run(f"DROP TABLE {COMING}")

    def _delete_equals(self, changes: Changes) -> None:
        names = [DUCKDB.identifier(changes.table.columns[name].name) for name in changes.columns]

        def identity(row: str) -> list[str]:
            return [f"{row}.{name}" for name in names]

        equal = EqualRows(DUCKDB, changes, GOING, CHOSEN, ["rowid"], identity, "IS NOT DISTINCT FROM")
        run = self._connection.execute
        run(f"CREATE OR REPLACE TEMP TABLE {CHOSEN} AS {equal.choose()}")
        run(equal.delete())
        lacking = {int(number): int(times) for number, times in run(equal.select_lacking()).fetchall()}
        run(f"DROP TABLE {CHOSEN}")
        if lacking:
            raise RowsNotFound(lacking)

    def _stage(self, name: str, columns: str, table: str, rows: Iterator[pa.RecordBatch]) -> None:
        create_staging_table(self._connection, name, columns, table)
        first = next(rows)
        insert_rows(self._connection, name, first.schema, chain([first], rows))


def create_staging_table(connection: duckdb.DuckDBPyConnection, name: str, columns: str, table: str) -> None:
    """Create an empty temporary table with the columns of ``SELECT columns FROM table``; replaces one of that name.

    The columns are spelled out. A table that ``CREATE TABLE .. AS`` makes from an empty SELECT accepts rows within the
    same transaction, but from a row group (122,880 rows) on, DuckDB 2.0 shows none of them to a reader.
    """
    described = connection.execute(f"DESCRIBE SELECT {columns} FROM {table}").fetchall()
    listed = ", ".join(f"{DUCKDB.identifier(column)} {kind}" for column, kind, *_ in described)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} ({listed})")


def insert_rows(
    connection: duckdb.DuckDBPyConnection, relation: str, schema: pa.Schema, rows: Iterator[pa.RecordBatch]
) -> None:
    connection.register(_RUN, pa.RecordBatchReader.from_batches(schema, prefetch(rows)))
    names = DUCKDB.names(schema.names)
    connection.execute(f"INSERT INTO {relation} ({names}) SELECT {names} FROM {_RUN}")
    # Not after an error: the aborted transaction would refuse this too, and hide why.
    connection.unregister(_RUN)


def line(error: Exception) -> str:
    """The first line of what DuckDB says; the others repeat the statement."""
    return str(error).strip().partition("\n")[0]
