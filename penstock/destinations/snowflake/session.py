"""A Snowflake connection as the loader uses it: files to a stage, then one transaction per load with its mark in it.

DDL commits implicitly in Snowflake, so everything is created before the transaction. Stage and staging table are
temporary: they end with the connection.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import faults
from penstock.destinations.contract import Batch, TableBook
from penstock.destinations.snowflake.dialect import STAGED, SnowflakeDialect
from penstock.destinations.snowflake.stage_files import write_files
from penstock.destinations.sql.load.table_load import Load
from penstock.destinations.sql.marked_session import MarkedSession
from penstock.destinations.sql.marks import Mark, last_expired_batch
from penstock.destinations.sql.schema.schema_operations import Key, Table, TypedColumn
from penstock.errors import PenstockError, RefusedError, TransientError

if TYPE_CHECKING:
    from snowflake.connector import SnowflakeConnection

_STAGE = "_PENSTOCK_STAGE"
_TEXT_AT_A_TIME = 100_000
"""Characters of a mark's text per statement, whose length is limited."""


class SnowflakeSession(MarkedSession):
    _mark_names = ("SCOPE", "ROUTE", "TABLE_NAME")

    def __init__(self, connection: SnowflakeConnection, dialect: SnowflakeDialect) -> None:
        self._cursor = connection.cursor()
        self.dialect: SnowflakeDialect = dialect
        self._has_stage = False
        self._has_marks = False

    # Tables

    def table(self, name: str) -> Table | None:
        catalogue = f"{self.dialect.identifier(self.dialect.database)}.INFORMATION_SCHEMA.COLUMNS"
        with self._translate_errors(refuses=False):
            rows = self._query(
                "SELECT COLUMN_NAME, DATA_TYPE, NUMERIC_PRECISION, NUMERIC_SCALE, CHARACTER_MAXIMUM_LENGTH"
                f" FROM {catalogue} WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
                self.dialect.database_schema,
                name.upper(),
            )
            if not rows:
                return None
            # If two names differ only in case, the one in upper case is ours.
            ordered = sorted(rows, key=lambda row: row[0] == str(row[0]).upper())
            columns = {
                str(column).lower(): TypedColumn(str(column), self.dialect.catalogued(*described))  # type: ignore[arg-type]
                for column, *described in ordered
            }
            return Table(name, columns, self._key(name))

    def _key(self, name: str) -> Key | None:
        rows = self._query(f"SHOW PRIMARY KEYS IN TABLE {self.dialect.relation(name)}")
        if not rows:
            return None
        places = {str(field[0]).lower(): place for place, field in enumerate(self._cursor.description)}
        ordered = sorted(rows, key=lambda row: int(str(row[places["key_sequence"]])))
        columns = tuple(str(row[places["column_name"]]).lower() for row in ordered)
        return Key(str(ordered[0][places["constraint_name"]]), columns)

    def select(self, query: str, **values: str) -> Sequence[Sequence[object]]:
        with self._translate_errors(refuses=False):
            self._cursor.execute(query, values or None)
            return [tuple(row) for row in self._cursor.fetchall()]

    def run_ddl(self, statements: Sequence[str]) -> None:
        with self._translate_errors(refuses=False):
            for statement in statements:
                self._cursor.execute(statement)

    def lock_schema(self, table: str, book: TableBook) -> AbstractContextManager[object]:
        return book.lock(f"snowflake {self.dialect.relation(table)}")

    # Loads

    def find_mark(self, batch: Batch, table: str) -> Mark | None:
        with self._translate_errors(refuses=False):
            self._ensure_marks_table()
        return self._stored_mark(batch, table)

    def _ensure_marks_table(self) -> None:
        if self._has_marks:
            return
        self._cursor.execute(f"CREATE TABLE IF NOT EXISTS {self._marks} ({_MARK_COLUMNS})")
        self._cursor.execute(f'ALTER TABLE {self._marks} ADD COLUMN IF NOT EXISTS "ORIGIN" TEXT')
        self._has_marks = True

    def _load(self, load: Load) -> None:
        folder = uuid.uuid4().hex
        names = load.rows.columns()
        with self._translate_errors():
            files = self._upload(load, folder)
            if load.merge and files:
                self._cursor.execute(self.dialect.create_staging(load.table, names, load.merge))
            with self._transaction(keep=load.batch is not None):
                if files:
                    relation = self.dialect.identifier(STAGED) if load.merge else self.dialect.relation(load.table.name)
                    self._cursor.execute(
                        self.dialect.copy_into(relation, load.staged_columns(self.dialect), _STAGE, folder)
                    )
                    for statement in self.dialect.merge_statements(load.table, names, load.merge) if load.merge else ():
                        self._cursor.execute(statement)
                if (mark := load.mark()) is not None:
                    self._write_mark(mark)
                    faults.reach("destination.writing")

    def _upload(self, load: Load, folder: str) -> int:
        """Upload the rows to the stage; returns the number of files."""
        with tempfile.TemporaryDirectory(prefix="penstock-snowflake-") as directory:
            paths = write_files(load, self.dialect, Path(directory))
            if paths and not self._has_stage:
                stage = self.dialect.stage(_STAGE).removeprefix("@")
                self._cursor.execute(f"CREATE TEMPORARY STAGE IF NOT EXISTS {stage}")
                self._has_stage = True
            for path in paths:
                self._cursor.execute(self.dialect.put_statement(str(path), _STAGE, folder))
        return len(paths)

    def _write_mark(self, mark: Mark) -> None:
        batch = mark.batch
        this = (batch.scope, batch.route, batch.number, mark.table)
        first, *more = [
            mark.failures[start : start + _TEXT_AT_A_TIME]
            for start in range(0, max(1, len(mark.failures)), _TEXT_AT_A_TIME)
        ]
        self._cursor.execute(
            f"INSERT INTO {self._marks} SELECT %s, %s, %s, %s, %s, %s, CURRENT_TIMESTAMP(), %s",
            (*this, mark.rows, first, batch.origin),
        )
        for text in more:
            self._cursor.execute(
                f"UPDATE {self._marks} SET FAILURES = FAILURES || %s WHERE {_THIS_MARK}", (text, *this)
            )
        self._cursor.execute(
            f"DELETE FROM {self._marks} WHERE SCOPE = %s AND ROUTE = %s AND BATCH <= %s",
            (batch.scope, batch.route, last_expired_batch(batch)),
        )

    # The connection

    def _query(self, query: str, *values: str | int) -> list[tuple[object, ...]]:
        self._cursor.execute(query, values or None)
        return [tuple(row) for row in self._cursor.fetchall()]

    @contextmanager
    def _transaction(self, keep: bool) -> Iterator[None]:
        self._cursor.execute("BEGIN")
        try:
            yield
            self._cursor.execute("COMMIT" if keep else "ROLLBACK")
        except BaseException:
            # A lost connection has ended its transaction.
            with suppress(Exception):
                self._cursor.execute("ROLLBACK")
            raise

    @contextmanager
    def _translate_errors(self, refuses: bool = True) -> Iterator[None]:
        from snowflake.connector.errors import Error

        try:
            yield
        except Error as error:
            raise as_penstock_error(error, refuses) from error


_MARK_COLUMNS = (
    '"SCOPE" TEXT, "ROUTE" TEXT, "BATCH" NUMBER(38,0), "TABLE_NAME" TEXT, "LOADED" NUMBER(38,0), "FAILURES" TEXT,'
    ' "COMMITTED_AT" TIMESTAMP_TZ, "ORIGIN" TEXT'
)
_THIS_MARK = "SCOPE = %s AND ROUTE = %s AND BATCH = %s AND TABLE_NAME = %s"


def as_penstock_error(error: Exception, refuses: bool = True) -> PenstockError:
    """Whether Snowflake refuses the rows themselves, or cannot load them now."""
    said = str(getattr(error, "msg", None) or error).strip().partition("\n")[0]
    message = f"Snowflake says: {said}"
    if refuses and _is_refusal(error):
        return RefusedError("PEN-DST-024", message, "Fix the value or the table, then: penstock failed replay")
    return TransientError("PEN-DST-043", message, "See that the server runs and can be reached: penstock doctor")


def _is_refusal(error: Exception) -> bool:
    """Errors of values are in the classes 22 and 23 of SQL, and numbered from 100000 by Snowflake."""
    state, number = getattr(error, "sqlstate", None), getattr(error, "errno", None)
    return str(state or "")[:2] in ("22", "23") or (isinstance(number, int) and 100_000 <= number < 101_000)
