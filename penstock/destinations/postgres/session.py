"""A PostgreSQL connection as the loader uses it: COPY, one transaction per load with its mark in it, advisory locks.

Rows without a key are copied straight into their table. With a key they are copied into a temporary table and taken
over by one INSERT .. ON CONFLICT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import psycopg
from psycopg import sql

from penstock import faults
from penstock.destinations.contract import Batch, TableBook
from penstock.destinations.postgres.copy_rows import lines, padded
from penstock.destinations.postgres.dialect import PostgresDialect
from penstock.destinations.postgres.errors import About, explained
from penstock.destinations.postgres.kept_values import PostgresKeptValues
from penstock.destinations.postgres.mirror_applier import PostgresMirror
from penstock.destinations.sql.load.merge_rows import Merge
from penstock.destinations.sql.schema.table_changes import Key, Table, TypedColumn, WidenColumn
from penstock.destinations.sql.session import MARKS, Comments, Load, Mark, Session, forgettable, listed_mark
from penstock.errors import TransientError

_STAGED = "_penstock_staged"
_NUMBERED, _NUMBER = "_penstock_numbered", "#number"

Connection = psycopg.Connection[tuple[object, ...]]


class PostgresSession(Session):
    max_tries = 50_000

    def __init__(self, connection: Connection, dialect: PostgresDialect, mirrors: bool = False) -> None:
        """One that ``mirrors`` gives identity columns the values of the source."""
        self._connection = connection
        self.dialect: PostgresDialect = dialect
        self._mirrors = mirrors

    # Tables

    def table(self, name: str) -> Table | None:
        with self._transaction() as cursor:
            cursor.execute(_COLUMNS, (self.dialect.database_schema, name))
            rows = cursor.fetchall()
            if not rows:
                return None
            cursor.execute(_KEY, (self.dialect.database_schema, name))
            found = cursor.fetchone()
        identities = frozenset(str(column) for column, _, _, identity in rows if identity)
        computed = frozenset(str(column) for column, _, generated, _ in rows if generated)
        computed |= frozenset() if self._mirrors else identities
        columns = {str(row[0]): TypedColumn(str(row[0]), str(row[1])) for row in rows if row[0] not in computed}
        key = Key(str(found[0]), tuple(found[1])) if found else None  # type: ignore[arg-type]
        return Table(name, columns, key, computed, identities)

    def exists(self, name: str) -> bool:
        with self._transaction() as cursor:
            return cursor.execute(_TAKEN, {"schema": self.dialect.database_schema, "name": name}).fetchone() is not None

    def select(self, query: str) -> Sequence[Sequence[object]]:
        with self._transaction(about=About.CONNECTION) as cursor:
            return cursor.execute(_text(query)).fetchall()

    def comments(self, table: str) -> Comments:
        with self._transaction() as cursor:
            found = cursor.execute(_COMMENTS, (self.dialect.relation(table),)).fetchall()
        texts = {str(column): str(text) for column, text in found}
        return Comments(texts.pop("", ""), texts)

    def has_rows(self, table: str) -> bool:
        with self._transaction() as cursor:
            return cursor.execute(_text(f"SELECT FROM {self.dialect.relation(table)} LIMIT 1")).fetchone() is not None

    def change(self, statements: Sequence[str]) -> None:
        # Inside the transaction that ``patching`` has open, which goes on if they are refused.
        with self._explained(About.TABLE), self._connection.transaction(), self._connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(_text(statement))

    def loses(self, widening: WidenColumn) -> bool:
        query = self.dialect.lost_by(widening)
        if query is None:
            return False
        with self._explained(About.CONNECTION), self._connection.cursor() as cursor:
            return cursor.execute(_text(query)).fetchone() is not None

    @contextmanager
    def patching(self, table: str, book: TableBook) -> Iterator[None]:
        with self._transaction(about=About.CONNECTION) as cursor:
            cursor.execute(_LOCK, (f"penstock {self.dialect.relation(table)}",))
            yield

    # Loads

    def mark(self, batch: Batch, table: str) -> Mark | None:
        with self._transaction() as cursor:
            columns = self._mark_columns(cursor)
            if not columns:
                return None
            if "origin" not in columns:
                cursor.execute(_text(f"ALTER TABLE {self._marks} ADD COLUMN IF NOT EXISTS origin text"))
            cursor.execute(
                _text(f"SELECT loaded, failures, coalesce(origin, '') FROM {self._marks}")
                + sql.SQL(" WHERE scope = %s AND route = %s AND batch = %s AND table_name = %s"),
                (batch.scope, batch.route, batch.number, table),
            )
            found = cursor.fetchone()
        if found is None:
            return None
        return Mark(replace(batch, origin=str(found[2])), table, int(str(found[0])), str(found[1]))

    def newest_marks(self) -> list[Mark]:
        newest = f"SELECT scope, route, max(batch) FROM {self._marks} GROUP BY scope, route"
        return self._list_marks(_text(f"(scope, route, batch) IN ({newest})"), "''")

    def marks(self, scope: str, route: str) -> list[Mark]:
        return self._list_marks(sql.SQL("scope = %s AND route = %s"), "failures", scope, route)

    def _list_marks(self, condition: sql.SQL, failures: str, *values: str) -> list[Mark]:
        with self._transaction(about=About.CONNECTION) as cursor:
            columns = self._mark_columns(cursor)
            if not columns:
                return []
            origin = "coalesce(origin, '')" if "origin" in columns else "''"
            cursor.execute(
                _text(f"SELECT scope, route, batch, {origin}, table_name, loaded, {failures} FROM {self._marks} WHERE ")
                + condition
                + sql.SQL(" ORDER BY batch, table_name"),
                values,
            )
            return [listed_mark(row) for row in cursor.fetchall()]

    def _mark_columns(self, cursor: psycopg.Cursor[tuple[object, ...]]) -> set[str]:
        """Of the table of marks; empty if there is none yet."""
        cursor.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (self._marks,),
        )
        return {str(name) for (name,) in cursor.fetchall()}

    def load(self, load: Load, mark: Callable[[], Mark] | None) -> None:
        with self._transaction(keep=mark is not None) as cursor:
            if load.merge:
                self._merge(cursor, load, load.merge)
            else:
                self._append(cursor, load)
            # What a table checks at the end of a transaction is about these rows too: it is known now, also of a trial.
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            if mark is not None:
                self._note(cursor, mark())
                faults.reach("destination.writing")
        if mark is not None:
            faults.reach("destination.committed")

    def _append(self, cursor: psycopg.Cursor[tuple[object, ...]], load: Load) -> None:
        target = self.dialect.relation(load.table.name)
        try:
            with self._connection.transaction():
                self._copy(cursor, target, load)
        except (psycopg.errors.FeatureNotSupported, psycopg.errors.WrongObjectType):
            # COPY writes neither where rows are secured by policies nor through a view; INSERT may.
            columns, staged = load.rows.columns(), self.dialect.identifier(_STAGED)
            names = self.dialect.names([load.table.columns[name].name for name in columns])
            cursor.execute(
                _text(
                    f"CREATE TEMPORARY TABLE {staged} ON COMMIT DROP AS SELECT"
                    f" {self.dialect.staging(load.table, columns, None)} FROM {target} WITH NO DATA"
                )
            )
            self._copy(cursor, staged, load)
            cursor.execute(_text(f"INSERT INTO {target} ({names}) SELECT {names} FROM {staged}"))

    def _merge(self, cursor: psycopg.Cursor[tuple[object, ...]], load: Load, merge: Merge) -> None:
        if not merge.in_turns and not self.has_rows(load.table.name) and self._copied(cursor, load, merge):
            return
        columns = load.rows.columns()
        staged = self.dialect.identifier(_STAGED)
        cursor.execute(
            _text(
                f"CREATE TEMPORARY TABLE {staged} ON COMMIT DROP AS SELECT"
                f" {self.dialect.staging(load.table, columns, merge)}"
                f" FROM {self.dialect.relation(load.table.name)} WITH NO DATA"
            )
        )
        self._copy(cursor, staged, load, [load.table.columns[name].name for name in merge.key])
        if merge.in_turns:
            # Few rows have turns; without knowing that, PostgreSQL would read the whole table for them.
            cursor.execute(_text(f"ANALYZE {staged}"))
        try:
            with self._connection.transaction():
                cursor.execute(_text(self.dialect.merge(load.table, staged, columns, merge)))
        except psycopg.errors.CardinalityViolation:
            self._merge_equal_keys(cursor, load, merge)

    def _copied(self, cursor: psycopg.Cursor[tuple[object, ...]], load: Load, merge: Merge) -> bool:
        """Whether the rows could be copied straight into a table that has none to merge them with. Not if some have one
        key to the database, and not where rows are secured by policies: COPY may not write there."""
        real = load.table.columns
        keys, columns = ([real[name].name for name in names] for names in (merge.key, load.rows.columns()))
        try:
            with self._connection.transaction():
                self._copy(cursor, self.dialect.relation(load.table.name), load, keys, columns)
        except (psycopg.errors.UniqueViolation, psycopg.errors.FeatureNotSupported):
            return False
        return True

    def _merge_equal_keys(self, cursor: psycopg.Cursor[tuple[object, ...]], load: Load, merge: Merge) -> None:
        """Keys that differ to us can be equal to the database (padded text, letters of either case): of each such key
        the rows are merged one after the other, in their order."""
        columns, staged = load.rows.columns(), self.dialect.identifier(_STAGED)
        cursor.execute(_text(f"TRUNCATE {staged}"))
        self._copy(cursor, staged, load)
        rows, number = self.dialect.identifier(_NUMBERED), self.dialect.identifier(_NUMBER)
        keys = self.dialect.names([load.table.columns[name].name for name in merge.key])
        due = self.dialect.due(load.table, staged, columns, merge)
        cursor.execute(
            _text(
                f"CREATE TEMPORARY TABLE {rows} ON COMMIT DROP AS SELECT {self._real(load)}, row_number() OVER"
                f' (PARTITION BY {keys} ORDER BY "#place") AS {number} FROM'
                f' (SELECT s.*, row_number() OVER () AS "#place" FROM {due} AS s) AS s'
            )
        )
        cursor.execute(_text(f"SELECT max({number}) FROM {rows}"))
        times = int(str((cursor.fetchone() or (0,))[0]))
        for time in range(1, times + 1):
            some = f"(SELECT * FROM {rows} WHERE {number} = {time})"
            cursor.execute(_text(self.dialect.merge(load.table, some, columns, replace(merge, in_turns=False))))

    def _real(self, load: Load) -> str:
        return self.dialect.names([load.table.columns[name].name for name in load.rows.columns()])

    def _copy(
        self,
        cursor: psycopg.Cursor[tuple[object, ...]],
        relation: str,
        load: Load,
        by: Sequence[str] = (),
        columns: Sequence[str] = (),
    ) -> None:
        """``columns`` are NULL in rows that do not carry them; any other column then has its default."""
        for rows in load.rows.readers():
            reader = padded(rows, columns)
            names = self.dialect.names(reader.schema.names)
            with cursor.copy(_text(f"COPY {relation} ({names}) FROM STDIN (FORMAT csv)")) as copy:
                for text in lines(reader, by):
                    copy.write(text)

    def _note(self, cursor: psycopg.Cursor[tuple[object, ...]], mark: Mark) -> None:
        batch = mark.batch
        if cursor.execute("SELECT to_regclass(%s)", (self._marks,)).fetchone() == (None,):
            # Of two that make it at once one would be told that its rows are there already.
            cursor.execute(_LOCK, (f"penstock {self._marks}",))
            cursor.execute(_text(f"CREATE TABLE IF NOT EXISTS {self._marks} ({_MARK_COLUMNS})"))
        cursor.execute(
            _text(
                f"INSERT INTO {self._marks} (scope, route, batch, table_name, loaded, failures, committed_at, origin)"
            )
            + sql.SQL(" VALUES (%s, %s, %s, %s, %s, %s, now(), %s) ON CONFLICT DO NOTHING"),
            (batch.scope, batch.route, batch.number, mark.table, mark.rows, mark.failures, batch.origin),
        )
        if cursor.rowcount == 0:
            # A commit that we took for lost came through after all.
            raise TransientError(
                "PEN-DST-029", f"table '{mark.table}' has got this batch meanwhile.", "It is looked at again."
            )
        cursor.execute(
            _text(f"DELETE FROM {self._marks}") + sql.SQL(" WHERE scope = %s AND route = %s AND batch <= %s"),
            (batch.scope, batch.route, forgettable(batch)),
        )

    @contextmanager
    def mirroring(self) -> Iterator[PostgresMirror]:
        with self._transaction() as cursor:
            yield PostgresMirror(cursor, self.dialect, explained, self._note)
        faults.reach("destination.committed")

    @contextmanager
    def kept_values(self, table: str, book: TableBook | None = None) -> Iterator[PostgresKeptValues]:
        kept = PostgresKeptValues(self._connection, self.dialect)
        if book is None:
            with self._transaction(about=About.CONNECTION):
                yield kept
            return
        with self.patching(table, book):
            # Whole, and at once: to begin with less and ask for more later would be a deadlock with a load.
            self.change([f"LOCK TABLE {self.dialect.relation(table)} IN ACCESS EXCLUSIVE MODE"])
            yield kept

    @property
    def _marks(self) -> str:
        return self.dialect.relation(MARKS)

    # Transactions

    @contextmanager
    def _transaction(
        self, keep: bool = True, about: About = About.ROWS
    ) -> Iterator[psycopg.Cursor[tuple[object, ...]]]:
        with (
            self._explained(about),
            self._connection.transaction(force_rollback=not keep),
            self._connection.cursor() as cursor,
        ):
            yield cursor

    @contextmanager
    def _explained(self, about: About = About.ROWS) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise explained(error, about) from error


_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
_MARK_COLUMNS = (
    "scope text, route text, batch bigint, table_name text, loaded bigint, failures text,"
    " committed_at timestamp with time zone, origin text, PRIMARY KEY (scope, route, batch, table_name)"
)
_COLUMNS = """
    SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attgenerated <> '', a.attidentity = 'a'
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p', 'v', 'f') AND a.attnum > 0
      AND NOT a.attisdropped
    ORDER BY a.attnum
"""
_TAKEN = """
    SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relname = %(name)s
    UNION ALL
    SELECT 1 FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
    WHERE n.nspname = %(schema)s AND t.typname = %(name)s AND t.typrelid = 0 AND t.typcategory <> 'A'
"""
_KEY = """
    SELECT k.conname, array_agg(a.attname ORDER BY u.place)
    FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    CROSS JOIN LATERAL unnest(k.conkey) WITH ORDINALITY AS u (number, place)
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = u.number
    WHERE n.nspname = %s AND c.relname = %s AND k.contype = 'p'
    GROUP BY k.conname
"""
_COMMENTS = """
    SELECT coalesce(a.attname, ''), d.description
    FROM pg_description d LEFT JOIN pg_attribute a ON a.attrelid = d.objoid AND a.attnum = d.objsubid AND a.attnum > 0
    WHERE d.classoid = 'pg_class'::regclass AND d.objoid = to_regclass(%s)
"""


def _text(statement: str) -> sql.SQL:
    """A statement whose names were quoted by the dialect and whose values are parameters."""
    return sql.SQL(statement.replace("%", "%%"))
