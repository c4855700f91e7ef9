"""Applies changes to a PostgreSQL table in one transaction: COPY to temporary tables, DELETE, INSERT .. ON CONFLICT.

Rows that should be new are copied straight into the table; if one exists after all, they are staged and upserted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import psycopg
import pyarrow as pa

from penstock import faults
from penstock.destinations.postgres import error_translation
from penstock.destinations.postgres.copy_rows import copy_rows, plain
from penstock.destinations.postgres.dialect import PostgresDialect
from penstock.destinations.sql.dialect import assignments
from penstock.destinations.sql.marks import Mark
from penstock.destinations.sql.mirror import mirror_statements
from penstock.destinations.sql.mirror.applier import MirrorTransaction, RowsNotFound
from penstock.destinations.sql.mirror.mirror_statements import EqualRows
from penstock.destinations.sql.mirror.row_changes import Changes
from penstock.errors import RefusedError

COMING, GOING, CHOSEN = '"_penstock_coming"', '"_penstock_going"', '"_penstock_chosen"'

Cursor = psycopg.Cursor[tuple[object, ...]]


class PostgresMirrorTransaction(MirrorTransaction):
    whole_rows = False
    starts_over = False

    def __init__(self, cursor: Cursor, dialect: PostgresDialect, write_mark: Callable[[Cursor, Mark], None]) -> None:
        self._cursor = cursor
        self._dialect = dialect
        self._write_mark = write_mark

    def apply(self, changes: Changes) -> None:
        try:
            with self._cursor.connection.transaction():
                self._apply(changes)
                # Check now: at the end of the transaction nobody could tell which changes broke a constraint.
                self._cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        except psycopg.errors.CardinalityViolation as error:
            # Keys that differ at the source but are equal here: applied one by one they replace each other.
            said = error_translation.as_penstock_error(error)
            raise RefusedError(said.code, said.what, said.fix) from error
        except psycopg.Error as error:
            raise error_translation.as_penstock_error(error) from error

    def write_mark(self, mark: Mark) -> None:
        self._write_mark(self._cursor, mark)
        faults.reach("destination.writing")

    def _apply(self, changes: Changes) -> None:
        table = self._dialect.relation(changes.table.name)
        if changes.truncates:
            self._run(f"DELETE FROM {table}")
            self._refuse_left_rows(f"SELECT 1 FROM {table} LIMIT 1")
        if changes.fills:
            # First, because the rows that fill the gaps may be about to go.
            self._stage(COMING, mirror_statements.coming_columns(self._dialect, changes), table, changes.come())
            self._run(f"ANALYZE {COMING}")
            for statement in mirror_statements.fill_gaps(self._dialect, changes, COMING):
                self._run(statement)
        if changes.gone.num_rows:
            self._stage(GOING, mirror_statements.gone_columns(self._dialect, changes), table, changes.gone.to_batches())
            self._run(f"ANALYZE {GOING}")
            if changes.key:
                self._run(mirror_statements.delete(self._dialect, changes, GOING))
                self._refuse_left_rows(mirror_statements.select_left(self._dialect, changes, GOING))
            else:
                self._delete_equals(changes)
            self._run(f"DROP TABLE {GOING}")
        if changes.count and not (changes.inserts and not changes.fills and self._try_copy(changes, table)):
            if not changes.fills:
                self._stage(COMING, mirror_statements.coming_columns(self._dialect, changes), table, changes.come())
            kept = 0
            for statement in self._upserts(changes):
                self._run(statement)
                # What is nothing but its key may be there already.
                kept += changes.count if statement.endswith(_NOTHING) else self._cursor.rowcount
            error_translation.refuse_dropped_rows(changes.count, kept)
            self._run(f"DROP TABLE {COMING}")

    def _try_copy(self, changes: Changes, table: str) -> bool:
        """Try to copy the rows straight into the table; returns whether it worked."""
        try:
            with self._cursor.connection.transaction():
                error_translation.refuse_dropped_rows(*self._copy(table, changes.come()))
        except psycopg.errors.UniqueViolation:
            if not changes.key:
                raise
            return False
        return True

    def _stage(self, name: str, columns: str, table: str, rows: Iterable[pa.RecordBatch]) -> None:
        self._run(f"CREATE TEMPORARY TABLE {name} ON COMMIT DROP AS SELECT {columns} FROM {table} WITH NO DATA")
        self._copy(name, iter(rows))

    def _copy(self, relation: str, rows: Iterator[pa.RecordBatch]) -> tuple[int, int]:
        """Returns how many rows were given to the database, and how many it says it has kept."""
        first = next(rows)
        reader = pa.RecordBatchReader.from_batches(first.schema, chain([first], rows))
        return copy_rows(self._cursor, relation, self._dialect.names(first.schema.names), reader)

    def _upserts(self, changes: Changes) -> Iterator[str]:
        table = self._dialect.relation(changes.table.name)
        for columns, rows in mirror_statements.insert_selects(self._dialect, changes, COMING):
            listed = self._dialect.real_names(changes.table, columns)
            # The source's values even in identity columns.
            insert = f"INSERT INTO {table} AS t ({listed}) OVERRIDING SYSTEM VALUE {rows}"
            if not changes.key:
                yield insert
                continue
            keys = self._dialect.real_names(changes.table, changes.key)
            # In the order of the index: neighbouring rows are found and written together.
            yield f"{insert} ORDER BY {keys} ON CONFLICT ({keys}) DO {self._update(changes, columns)}"

    def _update(self, changes: Changes, columns: Sequence[str]) -> str:
        changed = [name for name in columns if name not in changes.key and name not in changes.table.fixed]
        names = [self._dialect.identifier(changes.table.columns[name].name) for name in changed]
        return f"UPDATE SET {assignments({name: f'EXCLUDED.{name}' for name in names})}" if names else _NOTHING

    def _delete_equals(self, changes: Changes) -> None:
        """Rows are equal if their text is equal: that works for every type, and for NULL."""
        names = [self._dialect.identifier(changes.table.columns[name].name) for name in changes.columns]

        def identity(row: str) -> list[str]:
            return [f"ROW({', '.join(f'{row}.{name}' for name in names)})::text"]

        equal = EqualRows(self._dialect, changes, GOING, CHOSEN, ["tableoid", "ctid"], identity, "=")
        self._run(f"CREATE TEMPORARY TABLE {CHOSEN} ON COMMIT DROP AS {equal.choose()}")
        chosen = self._cursor.rowcount
        self._run(equal.delete())
        if self._cursor.rowcount < chosen:
            error_translation.refuse_prevented_delete()
        self._run(equal.select_lacking())
        lacking = {int(str(number)): int(str(times)) for number, times in self._cursor.fetchall()}
        self._run(f"DROP TABLE {CHOSEN}")
        if lacking:
            raise RowsNotFound(lacking)

    def _refuse_left_rows(self, select_left: str) -> None:
        self._run(select_left)
        if self._cursor.fetchone() is not None:
            error_translation.refuse_prevented_delete()

    def _run(self, statement: str) -> None:
        self._cursor.execute(plain(statement))


_NOTHING = "NOTHING"
