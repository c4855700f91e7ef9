"""A connection to PostgreSQL that keeps state: COPY, advisory locks, temporary tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

import psycopg
import pyarrow as pa
from psycopg import sql

from penstock.destinations.contract import NULL_TABLE_BOOK
from penstock.destinations.postgres.copy_rows import csv_pieces
from penstock.destinations.postgres.dialect import PostgresDialect
from penstock.destinations.postgres.error_translation import About, as_penstock_error, refuse_dropped_rows
from penstock.destinations.postgres.mirror_applier import Cursor
from penstock.destinations.postgres.session import Connection, PostgresSession
from penstock.destinations.sql.schema.schema_operations import Key, Table, TypedColumn
from penstock.destinations.state.store.bookkeeping import Bookkeeping
from penstock.destinations.state.store.diff_statements import SAID, STAGED
from penstock.destinations.state.store.fit_state import StateTable
from penstock.destinations.state.store.reserved_tables import COLUMNS
from penstock.destinations.state.store.state_connection import Answer, Plan, Staged, StateConnection, Statement, Value
from penstock.flatten.values.to_json import as_text


class PostgresStateConnection(StateConnection):
    def __init__(self, connection: Connection, dialect: PostgresDialect) -> None:
        self.dialect: PostgresDialect = dialect
        self.books = postgres_books(dialect)
        self._connection = connection
        self._shape = _SHAPE.format(columns=dialect.relation(COLUMNS), guarded=_GUARDED)

    @property
    def is_usable(self) -> bool:
        return not self._connection.closed

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def transaction(self, about_rows: bool = False) -> Iterator[None]:
        try:
            with self._connection.transaction():
                yield
        except psycopg.Error as error:
            raise as_penstock_error(error, About.ROWS if about_rows else About.CONNECTION) from error

    def ask(self, *statements: Statement) -> list[Answer]:
        if len(statements) < 2:
            return [_answer(self._send(statement)) for statement in statements]
        with self._connection.pipeline():
            sent = [self._send(statement) for statement in statements]
        return [_answer(cursor) for cursor in sent]

    def _send(self, statement: Statement) -> Cursor:
        text = statement.text.replace("%", "%%")
        # Names are quoted: what looks like a parameter in one is none.
        for name in statement.values:
            text = text.replace(f"%%({name})s", f"%({name})s")
        return self._connection.execute(sql.SQL(text), statement.values)

    def limit_statements(self, seconds: float) -> Sequence[Statement]:
        text = f"SELECT set_config('statement_timeout', {self.dialect.parameter('milliseconds')}, true)"
        return [Statement(text, {"milliseconds": str(max(1, round(seconds * 1000)))})]

    def state_table(self, name: str) -> StateTable | None:
        return self.ask_with_table((), name)[1]

    def ask_with_table(self, statements: Sequence[Statement], table: str) -> tuple[list[Answer], StateTable | None]:
        # Those who change the table wait for all who have read it, and the other way round.
        lock = Statement(_SHARE, {"name": _lock_name(self.dialect, table)})
        *answers, _, shape = self.ask(*statements, lock, self._shape_of(table))
        return answers, _table_of(table, shape.rows)

    def _shape_of(self, table: str) -> Statement:
        return Statement(self._shape, {"schema": self.dialect.database_schema, "name": table})

    def alter(self, name: str, plan: Plan) -> None:
        session = PostgresSession(self._connection, self.dialect)
        with self.transaction():
            # Of those who change the table one at a time stands among those who write to it.
            self.run(_TAKE_TURN, name=f"{_lock_name(self.dialect, name)} change")
            with session.lock_schema(name, NULL_TABLE_BOOK):
                self._alter(name, plan)

    def _alter(self, name: str, plan: Plan) -> None:
        needed = plan(_table_of(name, self.ask(self._shape_of(name))[0].rows))
        try:
            # Whoever reads the table for long keeps this waiting, and this keeps all others: not for long.
            self.run(_WAIT_SHORTLY)
            for operation in needed.operations:
                self.run(self.dialect.render(operation))
            for column in needed.newly_filled:
                self.run(self.books.add_filled, table_name=name, column_name=column)
        except psycopg.Error as error:
            raise as_penstock_error(error, About.TABLE) from error

    def stage(self, table: Table, rows: pa.Table) -> Staged:
        types = {column.name: column.type for column in table.columns.values()} | {SAID: "smallint"}
        own = {*self.dialect.types.values(), types[SAID]}
        # To cast to other types may cut a value off.
        if rows.num_rows <= _FEW and own.issuperset(types[name] for name in rows.column_names):
            return self._unnested(rows, types)
        listed = [
            f"0::smallint AS {self.dialect.identifier(name)}" if name == SAID else self.dialect.identifier(name)
            for name in rows.column_names
        ]
        like = f"SELECT {', '.join(listed)} FROM {self.dialect.relation(table.name)} WITH NO DATA"
        staged = self.dialect.identifier(STAGED)
        self.run(f"CREATE TEMPORARY TABLE {staged} ON COMMIT DROP AS {like}")
        self._copy(staged, rows)
        self.run(f"ANALYZE {staged}")
        return Staged(staged)

    def _unnested(self, rows: pa.Table, types: Mapping[str, str]) -> Staged:
        """The rows as a subquery: a temporary table costs more than a few rows do."""
        given: dict[str, Value] = {}
        casts, arrays = [], []
        for number, name in enumerate(rows.column_names):
            given[f"column{number}"] = as_text(rows.column(name).combine_chunks()).to_pylist()
            arrays.append(f"CAST({self.dialect.parameter(f'column{number}')} AS text[])")
            casts.append(f"CAST(u.c{number} AS {types[name]}) AS {self.dialect.identifier(name)}")
        columns = ", ".join(f"c{number}" for number in range(len(arrays)))
        return Staged(f"(SELECT {', '.join(casts)} FROM unnest({', '.join(arrays)}) AS u ({columns}))", given)

    def gains_by_append(self, rows: int) -> bool:
        return rows > _FEW

    def forbid_nested_loops(self, rows: int) -> Sequence[Statement]:
        return [Statement(_NO_NESTED_LOOPS)] if rows > _FEW else []

    def append(self, table: Table, rows: pa.Table, by: Sequence[str]) -> None:
        self._copy(self.dialect.relation(table.name), rows, by)

    def _copy(self, relation: str, rows: pa.Table, by: Sequence[str] = ()) -> None:
        names = self.dialect.names(rows.column_names)
        statement = f"COPY {relation} ({names}) FROM STDIN (FORMAT csv)"
        with self._connection.cursor() as cursor:
            with cursor.copy(statement.encode()) as copy:
                for text in csv_pieces(rows.to_reader(), by):
                    copy.write(text)
            refuse_dropped_rows(rows.num_rows, cursor.rowcount)

    def comparable(self, value: str, sql_type: str) -> str:
        return value if sql_type.partition("(")[0] in _COMPARED else f"{value}::text"


def postgres_books(dialect: PostgresDialect) -> Bookkeeping:
    return Bookkeeping(dialect, locks=" FOR UPDATE", shares=" FOR SHARE", or_nothing=" ON CONFLICT DO NOTHING")


def _answer(cursor: Cursor) -> Answer:
    return Answer(cursor.fetchall() if cursor.description else [], cursor.rowcount)


def _table_of(name: str, rows: Sequence[Sequence[object]]) -> StateTable | None:
    """The table that the rows of ``_SHAPE`` describe."""
    if not rows:
        return None
    columns = {str(row[0]): TypedColumn(str(row[0]), str(row[1])) for row in rows if not row[2]}
    computed = frozenset(str(row[0]) for row in rows if row[2])
    filled = frozenset(str(row[0]) for row in rows if row[3])
    keyed = sorted((cast(int, row[5]), str(row[0])) for row in rows if row[5] is not None)
    key = Key(str(rows[0][4]), tuple(column for _, column in keyed)) if keyed else None
    return StateTable(Table(name, columns, key, computed), filled, guarded=bool(rows[0][6]))


def _lock_name(dialect: PostgresDialect, table: str) -> str:
    """The name of the lock that ``PostgresSession.lock_schema`` takes."""
    return f"penstock {dialect.relation(table)}"


_FEW = 500
"""So many rows are sent faster with a statement than before it."""
_COMPARED = frozenset((
    "text", "character varying", "bigint", "integer", "smallint", "numeric", "boolean", "double precision", "real",
    "timestamp with time zone", "timestamp without time zone", "date", "uuid", "jsonb",
))  # fmt: skip
"""Types whose equal values are the same. Others (citext, json, points) are compared as text."""
_NO_NESTED_LOOPS = "SELECT set_config('enable_nestloop', 'off', true)"
_WAIT_SHORTLY = "SELECT set_config('lock_timeout', '500ms', true)"
_TAKE_TURN = "SELECT pg_advisory_xact_lock(hashtextextended(%(name)s, 0))"
_SHARE = "SELECT pg_advisory_xact_lock_shared(hashtextextended(%(name)s, 0))"
_GUARDED = "c.relkind <> 'r' OR c.relhastriggers OR c.relhasrules OR c.relrowsecurity OR c.relhassubclass"
"""Triggers may also be those of a partition, or of the table behind a view."""
_SHAPE = """
    SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attgenerated <> '' OR a.attidentity = 'a',
      f.column_name IS NOT NULL, k.conname, array_position(k.conkey, a.attnum), {guarded}
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_constraint k ON k.conrelid = c.oid AND k.contype = 'p'
    LEFT JOIN {columns} f ON f.table_name = c.relname AND f.column_name = a.attname
    WHERE n.nspname = %(schema)s AND c.relname = %(name)s AND c.relkind IN ('r', 'p', 'v', 'f') AND a.attnum > 0
      AND NOT a.attisdropped
    ORDER BY a.attnum
"""
