"""A Redshift connection as the loader uses it: files are copied into a temporary table, then one short transaction
loads its rows and writes the mark.

That transaction begins by locking the table of marks, so it sees every mark that was ever committed, even one whose
COMMIT was still under way when its writer died; readers of the data never wait. Everything but COPY also runs on
PostgreSQL, where it is tested.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace

import psycopg
from psycopg import sql

from penstock import faults
from penstock.destinations.contract import Batch, TableBook
from penstock.destinations.redshift.dialect import MAX_TEXT, RedshiftDialect
from penstock.destinations.redshift.stage_files import Bucket
from penstock.destinations.sql.load.table_load import Load
from penstock.destinations.sql.load.wrapped_json import split_text
from penstock.destinations.sql.marked_session import MarkedSession
from penstock.destinations.sql.marks import MARKS, Mark, last_expired_batch
from penstock.destinations.sql.schema.schema_operations import Key, Table, TypedColumn
from penstock.errors import PenstockError, RefusedError, TransientError

STAGED = "_penstock_staged"

Row = tuple[object, ...]
Connection = psycopg.Connection[Row]


class RedshiftSession(MarkedSession):
    """Outside of ``_transaction`` each statement commits. Transactions do not nest: there are no savepoints."""

    _mark_order = "m.batch, m.table_name, m.part"

    def __init__(self, connection: Connection, dialect: RedshiftDialect, bucket: Bucket) -> None:
        self._connection = connection
        self.dialect: RedshiftDialect = dialect
        self._bucket = bucket

    # Tables

    def table(self, name: str) -> Table | None:
        with self._translate_errors():
            found = self._rows(COLUMNS, self.dialect.database_schema, name)
            key = self._rows(KEY, self.dialect.database_schema, name) if found else []
        if not found:
            return None
        columns = {str(column).lower(): TypedColumn(str(column), str(kind)) for _, column, kind in found}
        places = {int(str(number)): str(column).lower() for number, column, _ in found}
        return Table(name, columns, _key(key[0], places) if key else None)

    def select(self, query: str, **values: str) -> Sequence[Sequence[object]]:
        with self._translate_errors(refuses=False), self._connection.cursor() as cursor:
            return cursor.execute(sql.SQL(query), values or None).fetchall()

    def run_ddl(self, statements: Sequence[str]) -> None:
        with self._translate_errors(refuses=False), self._transaction():
            for statement in statements:
                self._run(statement)

    def lock_schema(self, table: str, book: TableBook) -> AbstractContextManager[object]:
        """By the ledger: Redshift has no advisory locks."""
        return book.lock(f"redshift {self.dialect.relation(table)}")

    # Loads

    def find_mark(self, batch: Batch, table: str) -> Mark | None:
        with self._translate_errors(refuses=False):
            columns = self._mark_columns()
            if not columns:
                return None
            if "origin" not in columns:
                self._run(f"ALTER TABLE {self._marks} ADD COLUMN origin character varying({MAX_TEXT})")
            return self._stored_mark(batch, table)

    def _read_marks(self, origin: str, failures: str, which: str, **values: str) -> list[Mark]:
        """Failures that are longer than a text can be are in several rows."""
        whole: dict[tuple[str, str, int, str], Mark] = {}
        for mark in super()._read_marks(origin, failures, which, **values):
            place = (mark.batch.scope, mark.batch.route, mark.batch.number, mark.table)
            before = whole[place].failures if place in whole else ""
            whole[place] = replace(mark, failures=before + mark.failures)
        return list(whole.values())

    def _mark_columns(self) -> set[str]:
        return {str(row[1]) for row in self._rows(COLUMNS, self.dialect.database_schema, MARKS)}

    def _load(self, load: Load) -> None:
        columns = load.rows.columns()
        staged = self.dialect.identifier(STAGED)
        real = self.dialect.real_names(load.table, columns)
        with self._translate_errors():
            self._stage(load, staged)
            if load.batch is not None:
                self._run(f"CREATE TABLE IF NOT EXISTS {self._marks} ({MARK_COLUMNS})")
            with self._transaction(keep=load.batch is not None):
                if (mark := load.mark()) is not None:
                    self._lock_marks(mark)
                if load.merge:
                    self._run(self.dialect.merge(load.table, staged, columns, load.merge))
                else:
                    target = self.dialect.relation(load.table.name)
                    self._run(f"INSERT INTO {target} ({real}) SELECT {real} FROM {staged}")
                if mark is not None:
                    self._write_mark(mark)
                    faults.reach("destination.writing")

    def _stage(self, load: Load, staged: str) -> None:
        """Load the rows into a temporary table of this session."""
        columns = self.dialect.staging_select(load.table, load.rows.columns(), load.merge)
        self._run(f"DROP TABLE IF EXISTS {staged}")
        target = self.dialect.relation(load.table.name)
        self._run(f"CREATE TEMPORARY TABLE {staged} AS SELECT {columns} FROM {target} WHERE 1 = 0")
        with self._bucket.folder() as folder:
            for run in folder.write(load.rows.readers()):
                self._run(self._bucket.copy(self.dialect, staged, run))

    def _lock_marks(self, mark: Mark) -> None:
        """Lock the table of marks; raises if the mark is there already."""
        self._run(f"LOCK TABLE {self._marks}")
        if self._stored_mark(mark.batch, mark.table) is not None:
            raise TransientError(
                "PEN-DST-031",
                f"batch {mark.batch.number} of '{mark.table}' was just loaded.",
                "Nothing to do: it is looked up again.",
            )

    def _write_mark(self, mark: Mark) -> None:
        batch = mark.batch
        for part, failures in enumerate(split_text(mark.failures, MAX_TEXT) or [""]):
            self._run(
                f"INSERT INTO {self._marks} (scope, route, batch, table_name, loaded, part, failures, committed_at,"
                f" origin) VALUES (%s, %s, {batch.number:d}, %s, {mark.rows:d}, {part:d}, %s, CURRENT_TIMESTAMP, %s)",
                batch.scope,
                batch.route,
                mark.table,
                failures,
                batch.origin,
            )
        self._run(
            f"DELETE FROM {self._marks} WHERE scope = %s AND route = %s AND batch <= {last_expired_batch(batch):d}",
            batch.scope,
            batch.route,
        )

    # Statements

    def _rows(self, statement: str, *values: str) -> list[Row]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql.SQL(statement), values)
            return cursor.fetchall()

    def _run(self, statement: str, *values: str) -> None:
        """Values are always text: numbers would be sent in binary form."""
        with self._connection.cursor() as cursor:
            if values:
                cursor.execute(sql.SQL(statement), values)
            else:
                cursor.execute(statement.encode())

    @contextmanager
    def _transaction(self, keep: bool = True) -> Iterator[None]:
        with self._connection.transaction(force_rollback=not keep):
            yield

    @contextmanager
    def _translate_errors(self, refuses: bool = True) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise as_penstock_error(error, refuses, self._load_error() if is_load_error(error) else "") from error
        except faults.InjectedFault:
            raise
        except OSError as error:
            what = f"{self._bucket.location} cannot be written: {str(error).partition(chr(10))[0]}"
            raise TransientError(
                "PEN-DST-032", what, "See that the bucket is there and may be written: penstock doctor"
            ) from error

    def _load_error(self) -> str:
        """Why COPY failed: its own message only says where to look."""
        with suppress(psycopg.Error):
            for column, reason in self._rows(LOAD_ERROR):
                return f"{str(reason).strip()} (column {str(column).strip()})"
        return ""


MARK_COLUMNS = (
    f"scope character varying(255), route character varying({MAX_TEXT}), batch bigint,"
    f" table_name character varying(255), loaded bigint, part integer,"
    f" failures character varying({MAX_TEXT}), committed_at timestamp with time zone,"
    f" origin character varying({MAX_TEXT})"
)
COLUMNS = """
    SELECT a.attnum, a.attname, format_type(a.atttypid, a.atttypmod)
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'v') AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
"""
KEY = """
    SELECT k.conname, k.conkey
    FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s AND k.contype = 'p'
"""
LOAD_ERROR = """
    SELECT column_name, error_message FROM sys_load_error_detail
    WHERE session_id = pg_backend_pid() ORDER BY start_time DESC LIMIT 1
"""


def _key(found: Row, places: dict[int, str]) -> Key:
    name, numbers = found
    # A list where the driver knows the array's type, its text where not.
    listed = numbers if isinstance(numbers, list) else str(numbers).strip("{}").split(",")
    return Key(str(name), tuple(places[int(number)] for number in listed))


def is_load_error(error: psycopg.Error) -> bool:
    """COPY reports bad data with the code of an internal error; only the message tells them apart."""
    said = str(error).lower()
    return "load_error" in said or "load into table" in said


def as_penstock_error(error: psycopg.Error, refuses: bool = True, detail: str = "") -> PenstockError:
    """Whether Redshift refuses the rows themselves or cannot load them now (a serializable isolation violation, a
    cluster that is being resized, a role that may not read the bucket)."""
    said = (error.diag.message_primary or str(error)).strip().partition("\n")[0]
    detail = detail or " ".join((error.diag.message_detail or "").split())
    message = f"Redshift says: {said}" + (f" ({detail})" if detail else "")
    if refuses and (is_load_error(error) or (error.sqlstate or "")[:2] in _REFUSALS):
        return RefusedError("PEN-DST-033", message, "Fix the value or the table, then: penstock failed replay")
    return TransientError("PEN-DST-034", message, "See that the server runs and can be reached: penstock doctor")


_REFUSALS = ("22", "23", "54")
"""Bad values, constraints, limits."""
