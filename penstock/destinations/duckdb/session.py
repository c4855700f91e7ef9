"""A DuckDB file as the loader sees it: every load is one transaction, with its mark in it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

import duckdb
import pyarrow as pa

from penstock import faults
from penstock.destinations.contract import Batch, TableBook
from penstock.destinations.duckdb.dialect import DUCKDB
from penstock.destinations.duckdb.mirror_applier import DuckdbMirrorTransaction, create_staging_table, insert_rows, line
from penstock.destinations.duckdb.unmapped_store import DuckdbUnmappedStore
from penstock.destinations.sql.load.merge_rows import Merge
from penstock.destinations.sql.load.row_pieces import load_schema, with_all_columns
from penstock.destinations.sql.load.table_load import Load
from penstock.destinations.sql.marked_session import MarkedSession
from penstock.destinations.sql.marks import MARKS, Mark, last_expired_batch
from penstock.destinations.sql.schema.schema_operations import Key, Table, TypedColumn, WidenColumn
from penstock.destinations.sql.session import Comments
from penstock.destinations.sql.stage.table_files import FILE_ROWS
from penstock.errors import RefusedError, TableRefusedError, TransientError

_STAGED = "_penstock_staged"
_COLUMNS = """
    SELECT column_name, data_type FROM duckdb_columns()
    WHERE database_name = current_database() AND schema_name = current_schema() AND lower(table_name) = ?
      AND NOT internal
    ORDER BY column_index
"""
_COMMENTS = """
    SELECT '', comment FROM duckdb_tables()
    WHERE database_name = current_database() AND schema_name = current_schema() AND lower(table_name) = ?
      AND comment IS NOT NULL
    UNION ALL
    SELECT lower(column_name), comment FROM duckdb_columns()
    WHERE database_name = current_database() AND schema_name = current_schema() AND lower(table_name) = ?
      AND comment IS NOT NULL
"""


class DuckdbSession(MarkedSession):
    """Nobody else can open the file while this session has it, so it needs no lock of its own."""

    dialect = DUCKDB
    max_tries = sys.maxsize

    def __init__(self, connection: duckdb.DuckDBPyConnection, path: Path) -> None:
        self._connection = connection
        self._path = path
        # DuckDB's views of its catalog take 20 ms to look at anything for the first time, and so does a search for
        # names that resemble a missing one. A session that lasts for one batch would do little else.
        connection.execute("SET catalog_error_max_schemas = 0")
        ((database, schema),) = connection.execute("SELECT current_database(), current_schema()").fetchall()
        self._schema = DUCKDB.identifier(database) + "." + DUCKDB.identifier(schema)

    def table(self, name: str) -> Table | None:
        with self._translate_errors():
            try:
                found = self._connection.execute(f"DESCRIBE {self._schema}.{DUCKDB.identifier(name)}").fetchall()
            except (duckdb.CatalogException, duckdb.BinderException) as error:
                if f"Table with name {name} does not exist" in str(error):
                    return None
                # A view of something that is gone has columns, and cannot be described.
                found = [(*column, None, None) for column in self._connection.execute(_COLUMNS, [name]).fetchall()]
            if not found:
                return None
            columns = {column.lower(): TypedColumn(column, kind) for column, kind, *_ in found}
            has_key = any(key == "PRI" for _, _, _, key, *_ in found)
            return Table(name, columns, self._key(name) if has_key else None)

    def select(self, query: str, **values: str) -> Sequence[Sequence[object]]:
        with self._translate_errors():
            return self._connection.execute(query, values or None).fetchall()

    def _key(self, name: str) -> Key | None:
        query = (
            "SELECT constraint_name, constraint_column_names FROM duckdb_constraints()"
            " WHERE constraint_type = 'PRIMARY KEY' AND lower(table_name) = ? AND schema_name = current_schema()"
        )
        found = self._connection.execute(query, [name]).fetchone()
        return Key(found[0] or "", tuple(column.lower() for column in found[1])) if found else None

    def comments(self, table: str) -> Comments:
        with self._translate_errors():
            texts = dict(self._connection.execute(_COMMENTS, [table, table]).fetchall())
        return Comments(texts.pop("", ""), texts)

    def has_rows(self, table: str) -> bool:
        with self._translate_errors():
            return self._connection.execute(f"FROM {DUCKDB.relation(table)} LIMIT 1").fetchone() is not None

    def run_ddl(self, statements: Sequence[str]) -> None:
        try:
            with self._transaction():
                for statement in statements:
                    self._connection.execute(statement)
        except RefusedError as error:
            raise _table_refused(error.what) from error

    def would_lose_values(self, widening: WidenColumn) -> bool:
        query = DUCKDB.lossy_rows_query(widening)
        with self._translate_errors():
            return query is not None and self._connection.execute(query).fetchone() is not None

    def lock_schema(self, table: str, book: TableBook) -> AbstractContextManager[object]:
        return nullcontext()

    def find_mark(self, batch: Batch, table: str) -> Mark | None:
        with self._translate_errors():
            self._connection.execute(
                f"CREATE TABLE IF NOT EXISTS {MARKS} (scope VARCHAR, route VARCHAR, batch BIGINT, table_name VARCHAR,"
                " loaded BIGINT, failures VARCHAR, committed_at TIMESTAMPTZ, origin VARCHAR)"
            )
            marks = self.table(MARKS)
            if marks is not None and "origin" not in marks.columns:
                self._connection.execute(f"ALTER TABLE {MARKS} ADD COLUMN origin VARCHAR")
        return self._stored_mark(batch, table)

    def _load(self, load: Load) -> None:
        with self._transaction(keep=load.batch is not None):
            if load.merge:
                self._merge(load, load.merge)
            else:
                insert_rows(
                    self._connection, DUCKDB.relation(load.table.name), load_schema(load, DUCKDB), row_groups(load)
                )
            if (mark := load.mark()) is not None:
                self._write_mark(mark)
                faults.reach("destination.writing")

    def _merge(self, load: Load, merge: Merge) -> None:
        columns = load.rows.columns()
        staging = DUCKDB.staging_select(load.table, columns, merge)
        create_staging_table(self._connection, _STAGED, staging, DUCKDB.relation(load.table.name))
        insert_rows(self._connection, _STAGED, load_schema(load, DUCKDB), row_groups(load))
        self._connection.execute(DUCKDB.merge(load.table, _STAGED, columns, merge))
        self._connection.execute(f"DROP TABLE {_STAGED}")

    @contextmanager
    def open_mirror(self, keep: bool = True) -> Iterator[DuckdbMirrorTransaction]:
        with self._transaction(keep):
            yield DuckdbMirrorTransaction(self._connection, self._write_mark)
        if keep:
            faults.reach("destination.committed")

    @contextmanager
    def open_unmapped(self, table: str, book: TableBook | None = None) -> Iterator[DuckdbUnmappedStore]:
        with self._transaction():
            yield DuckdbUnmappedStore(self._connection)

    def _write_mark(self, mark: Mark) -> None:
        batch = mark.batch
        self._connection.execute(
            f"INSERT INTO {MARKS} VALUES (?, ?, ?, ?, ?, ?, current_timestamp, ?)",
            [batch.scope, batch.route, batch.number, mark.table, mark.rows, mark.failures, batch.origin],
        )
        self._connection.execute(
            f"DELETE FROM {MARKS} WHERE scope = ? AND route = ? AND batch <= ?",
            [batch.scope, batch.route, last_expired_batch(batch)],
        )

    @contextmanager
    def _transaction(self, keep: bool = True) -> Iterator[None]:
        with self._translate_errors():
            self._connection.execute("BEGIN")
            try:
                yield
                self._connection.execute("COMMIT" if keep else "ROLLBACK")
            except BaseException:
                # A transaction that failed as a whole (a full disk, say) is already rolled back.
                with suppress(duckdb.Error):
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (duckdb.InternalError, faults.InjectedFault):
            raise
        except (duckdb.Error, OSError, pa.ArrowException) as error:
            raise as_penstock_error(self._path, error) from error


def row_groups(load: Load) -> Iterator[pa.RecordBatch]:
    """All rows with all columns of the load, in batches of exactly one DuckDB row group. A load that is smaller than a
    group keeps its order.

    One thread compresses such a batch, so several run at once, and the batch is final: DuckDB regroups groups of other
    sizes when it closes the file, which takes as long as loading them. Staged files are cut to that size and pass
    through as they are. The remaining rows of all files come at the end.
    """
    schema = load_schema(load, DUCKDB)
    left: list[pa.RecordBatch] = []
    for reader in load.rows.readers():
        for batch in reader:
            rows = with_all_columns(batch, schema)
            if rows.num_rows == FILE_ROWS:
                yield rows
            else:
                left.append(rows)
    # The batches are in mapped files: keeping them costs next to nothing.
    rest = pa.Table.from_batches(left, schema)
    for start in range(0, rest.num_rows, FILE_ROWS):
        yield from rest.slice(start, FILE_ROWS).combine_chunks().to_batches()


def as_penstock_error(path: Path, error: Exception) -> TransientError | RefusedError | TableRefusedError:
    """Whether the file cannot hold the rows now (the disk, the memory, another transaction) or never will."""
    if isinstance(error, (duckdb.OperationalError, duckdb.FatalException, duckdb.InterruptException, OSError)):
        return TransientError(
            "PEN-DST-023", f"{path} was not written: {line(error)}", "Make room, on its disk or in memory."
        )
    if isinstance(error, _NOT_THE_ROWS):
        return _table_refused(f"DuckDB says: {line(error)}")
    return RefusedError(
        "PEN-DST-024", f"DuckDB says: {line(error)}", "Fix the value or the table, then: penstock failed replay"
    )


_NOT_THE_ROWS = (
    duckdb.CatalogException,
    duckdb.BinderException,
    duckdb.DependencyException,
    duckdb.ParserException,
    duckdb.NotImplementedException,
)


def _table_refused(what: str) -> TableRefusedError:
    return TableRefusedError("PEN-DST-094", what, "Fix the table, then: penstock failed replay")
