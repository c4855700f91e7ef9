"""A PostgreSQL connection as the loader uses it: COPY, one transaction per load with its mark in it, advisory locks.

Rows without a key are copied straight into their table. With a key they are copied into a temporary table and merged
by one INSERT .. ON CONFLICT.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg import sql

from penstock import faults
from penstock.destinations.contract import Batch, TableBook
from penstock.destinations.postgres.copy_rows import copy_rows, plain, with_columns
from penstock.destinations.postgres.dialect import PostgresDialect
from penstock.destinations.postgres.error_translation import About, as_penstock_error, refuse_dropped_rows
from penstock.destinations.postgres.mirror_applier import Cursor, PostgresMirrorTransaction
from penstock.destinations.postgres.unmapped_store import PostgresUnmappedStore
from penstock.destinations.sql.load.merge_rows import Merge
from penstock.destinations.sql.load.table_load import EqualKeys, Load
from penstock.destinations.sql.marked_session import MarkedSession
from penstock.destinations.sql.marks import Mark, last_expired_batch
from penstock.destinations.sql.schema.schema_operations import Key, Table, TypedColumn, WidenColumn
from penstock.destinations.sql.session import Comments
from penstock.errors import TransientError

_STAGED = "_penstock_staged"

Connection = psycopg.Connection[tuple[object, ...]]


class PostgresSession(MarkedSession):
    max_tries = sys.maxsize

    def __init__(self, connection: Connection, dialect: PostgresDialect, mirrors: bool = False) -> None:
        """With ``mirrors``, identity columns get the values of the source."""
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

    def is_name_taken(self, name: str) -> bool:
        with self._transaction() as cursor:
            return cursor.execute(_TAKEN, {"schema": self.dialect.database_schema, "name": name}).fetchone() is not None

    def select(self, query: str, **values: str) -> Sequence[Sequence[object]]:
        with self._transaction(about=About.CONNECTION) as cursor:
            return cursor.execute(sql.SQL(query), values or None).fetchall()

    def comments(self, table: str) -> Comments:
        with self._transaction() as cursor:
            found = cursor.execute(_COMMENTS, (self.dialect.relation(table),)).fetchall()
        texts = {str(column): str(text) for column, text in found}
        return Comments(texts.pop("", ""), texts)

    def has_rows(self, table: str) -> bool:
        with self._transaction() as cursor:
            return cursor.execute(plain(f"SELECT FROM {self.dialect.relation(table)} LIMIT 1")).fetchone() is not None

    def run_ddl(self, statements: Sequence[str]) -> None:
        # Nested in the transaction of ``lock_schema``, which goes on if the statements are refused.
        with self._translate_errors(About.TABLE), self._connection.transaction(), self._connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(plain(statement))

    def would_lose_values(self, widening: WidenColumn) -> bool:
        query = self.dialect.lossy_rows_query(widening)
        if query is None:
            return False
        with self._translate_errors(About.CONNECTION), self._connection.cursor() as cursor:
            return cursor.execute(plain(query)).fetchone() is not None

    @contextmanager
    def lock_schema(self, table: str, book: TableBook) -> Iterator[None]:
        with self._transaction(about=About.CONNECTION) as cursor:
            cursor.execute(_LOCK, (f"penstock {self.dialect.relation(table)}",))
            yield

    # Loads

    def find_mark(self, batch: Batch, table: str) -> Mark | None:
        with self._transaction() as cursor:
            columns = self._mark_columns(cursor)
            if not columns:
                return None
            if "origin" not in columns:
                cursor.execute(plain(f"ALTER TABLE {self._marks} ADD COLUMN IF NOT EXISTS origin text"))
            cursor.execute(
                plain(f"SELECT loaded, failures, coalesce(origin, '') FROM {self._marks}")
                + sql.SQL(" WHERE scope = %s AND route = %s AND batch = %s AND table_name = %s"),
                (batch.scope, batch.route, batch.number, table),
            )
            found = cursor.fetchone()
        if found is None:
            return None
        return Mark(replace(batch, origin=str(found[2])), table, int(str(found[0])), str(found[1]))

    def _mark_columns(self, cursor: Cursor) -> set[str]:
        """Of the table of marks; empty if there is none yet."""
        cursor.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (self._marks,),
        )
        return {str(name) for (name,) in cursor.fetchall()}

    def _load(self, load: Load) -> None:
        with self._transaction(keep=load.batch is not None) as cursor:
            if load.merge:
                self._merge(cursor, load, load.merge)
            else:
                self._append(cursor, load)
            # Deferred constraints concern these rows too: check them now, and in a trial as well.
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            if (mark := load.mark()) is not None:
                self._write_mark(cursor, mark)
                faults.reach("destination.writing")

    def _append(self, cursor: Cursor, load: Load) -> None:
        target = self.dialect.relation(load.table.name)
        # COPY through a view also counts the rows that the view's trigger drops.
        if cursor.execute("SELECT 1 FROM pg_class WHERE oid = %s::regclass AND relkind = 'v'", (target,)).fetchone():
            self._insert(cursor, load, target)
            return
        try:
            with self._connection.transaction():
                refuse_dropped_rows(*self._copy(cursor, target, load))
        except (psycopg.errors.FeatureNotSupported, psycopg.errors.WrongObjectType):
            # COPY does not write to tables with row-level security; INSERT may.
            self._insert(cursor, load, target)

    def _insert(self, cursor: Cursor, load: Load, target: str) -> None:
        columns, staged = load.rows.columns(), self.dialect.identifier(_STAGED)
        names = self.dialect.real_names(load.table, columns)
        self._create_staging(cursor, load, None)
        given, _ = self._copy(cursor, staged, load)
        cursor.execute(plain(f"INSERT INTO {target} ({names}) SELECT {names} FROM {staged}"))
        refuse_dropped_rows(given, cursor.rowcount)

    def _create_staging(self, cursor: Cursor, load: Load, merge: Merge | None) -> None:
        selected = self.dialect.staging_select(load.table, load.rows.columns(), merge)
        like = f"SELECT {selected} FROM {self.dialect.relation(load.table.name)} WITH NO DATA"
        cursor.execute(plain(f"CREATE TEMPORARY TABLE {self.dialect.identifier(_STAGED)} ON COMMIT DROP AS {like}"))

    def _merge(self, cursor: Cursor, load: Load, merge: Merge) -> None:
        if not merge.in_turns and not self.has_rows(load.table.name) and self._try_copy(cursor, load, merge):
            return
        columns = load.rows.columns()
        staged = self.dialect.identifier(_STAGED)
        self._create_staging(cursor, load, merge)
        given, _ = self._copy(cursor, staged, load, [load.table.columns[name].name for name in merge.key])
        if merge.in_turns:
            # Few rows have turns; without these statistics PostgreSQL would read the whole table.
            cursor.execute(plain(f"ANALYZE {staged}"))
        if merge.version is not None:
            given = self._newer_rows(cursor, load, merge) if self._has_row_triggers(cursor, load.table.name) else 0
        try:
            with self._connection.transaction():
                cursor.execute(plain(self.dialect.merge(load.table, staged, columns, merge)))
                if set(columns) > set(merge.key):
                    refuse_dropped_rows(given, cursor.rowcount)
        except psycopg.errors.CardinalityViolation:
            raise EqualKeys(self._key_classes(cursor, load, merge)) from None

    def _try_copy(self, cursor: Cursor, load: Load, merge: Merge) -> bool:
        """Try to copy the rows straight into an empty table; returns whether it worked. It does not if some keys are
        equal to the database, nor with row-level security, where COPY may not write."""
        real = load.table.columns
        keys, columns = ([real[name].name for name in names] for names in (merge.key, load.rows.columns()))
        try:
            with self._connection.transaction():
                refuse_dropped_rows(*self._copy(cursor, self.dialect.relation(load.table.name), load, keys, columns))
        except (psycopg.errors.UniqueViolation, psycopg.errors.FeatureNotSupported):
            return False
        return True

    def _key_classes(self, cursor: Cursor, load: Load, merge: Merge) -> npt.NDArray[np.int64]:
        """A number for each row of the load, in its order: the same for keys that are equal to the database."""
        staged, keys = self.dialect.identifier(_STAGED), self.dialect.real_names(load.table, merge.key)
        cursor.execute(plain(f"TRUNCATE {staged}"))
        self._copy(cursor, staged, load)
        # COPY into an empty table puts the rows one after the other.
        cursor.execute(plain(f"SELECT dense_rank() OVER (ORDER BY {keys}) FROM {staged} ORDER BY ctid"))
        return np.fromiter((number for (number,) in cursor), np.int64)

    def _has_row_triggers(self, cursor: Cursor, table: str) -> bool:
        """Whether the table has triggers that see a row before it is written, and may drop it."""
        return bool(cursor.execute(_ROW_TRIGGERS, (self.dialect.relation(table),)).fetchone())

    def _newer_rows(self, cursor: Cursor, load: Load, merge: Merge) -> int:
        """How many staged rows the merge will write: the table has no row of their key, or an older one."""
        columns, table = load.rows.columns(), load.table
        due = self.dialect.due_rows(table, self.dialect.identifier(_STAGED), columns, merge)
        key = self.dialect.identifier(table.columns[merge.key[0]].name)
        newer = self.dialect.is_newer(table, columns, merge) or "true"
        cursor.execute(
            plain(
                f"SELECT count(*) FROM {due} AS s LEFT JOIN {self.dialect.relation(table.name)} AS t"
                f" ON {self.dialect.key_match(table, merge.key)} WHERE t.{key} IS NULL OR ({newer})"
            )
        )
        return int(str((cursor.fetchone() or (0,))[0]))

    def _copy(
        self, cursor: Cursor, relation: str, load: Load, by: Sequence[str] = (), columns: Sequence[str] = ()
    ) -> tuple[int, int]:
        """``columns`` are NULL in rows that do not carry them; any other absent column gets its default. Returns how
        many rows were given to the database, and how many it says it has kept."""
        given = kept = 0
        for rows in load.rows.readers():
            reader = with_columns(rows, columns)
            counts = copy_rows(cursor, relation, self.dialect.names(reader.schema.names), reader, by)
            given, kept = given + counts[0], kept + counts[1]
        return given, kept

    def _write_mark(self, cursor: Cursor, mark: Mark) -> None:
        batch = mark.batch
        if cursor.execute("SELECT to_regclass(%s)", (self._marks,)).fetchone() == (None,):
            # Of two sessions that create it at once, one would fail with a unique violation.
            cursor.execute(_LOCK, (f"penstock {self._marks}",))
            cursor.execute(plain(f"CREATE TABLE IF NOT EXISTS {self._marks} ({_MARK_COLUMNS})"))
        cursor.execute(
            plain(
                f"INSERT INTO {self._marks} (scope, route, batch, table_name, loaded, failures, committed_at, origin)"
            )
            + sql.SQL(" VALUES (%s, %s, %s, %s, %s, %s, now(), %s) ON CONFLICT DO NOTHING"),
            (batch.scope, batch.route, batch.number, mark.table, mark.rows, mark.failures, batch.origin),
        )
        if cursor.rowcount == 0:
            # A commit that seemed lost succeeded after all.
            raise TransientError(
                "PEN-DST-029",
                f"table '{mark.table}' has got this batch meanwhile.",
                "Nothing to do: it is looked up again.",
            )
        cursor.execute(
            plain(f"DELETE FROM {self._marks}") + sql.SQL(" WHERE scope = %s AND route = %s AND batch <= %s"),
            (batch.scope, batch.route, last_expired_batch(batch)),
        )

    @contextmanager
    def open_mirror(self, keep: bool = True) -> Iterator[PostgresMirrorTransaction]:
        with self._transaction(keep) as cursor:
            yield PostgresMirrorTransaction(cursor, self.dialect, self._write_mark)
        if keep:
            faults.reach("destination.committed")

    @contextmanager
    def open_unmapped(self, table: str, book: TableBook | None = None) -> Iterator[PostgresUnmappedStore]:
        kept = PostgresUnmappedStore(self._connection, self.dialect)
        if book is None:
            with self._transaction(about=About.CONNECTION):
                yield kept
            return
        with self.lock_schema(table, book):
            # The strongest lock at once: taking a weaker one first and upgrading it could deadlock with a load.
            self.run_ddl([f"LOCK TABLE {self.dialect.relation(table)} IN ACCESS EXCLUSIVE MODE"])
            yield kept

    # Transactions

    @contextmanager
    def _transaction(self, keep: bool = True, about: About = About.ROWS) -> Iterator[Cursor]:
        with (
            self._translate_errors(about),
            self._connection.transaction(force_rollback=not keep),
            self._connection.cursor() as cursor,
        ):
            yield cursor

    @contextmanager
    def _translate_errors(self, about: About = About.ROWS) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise as_penstock_error(error, about) from error


_ROW_TRIGGERS = (
    "SELECT 1 FROM pg_trigger"
    " WHERE tgrelid = to_regclass(%s) AND NOT tgisinternal AND tgenabled <> 'D' AND tgtype & 3 = 3"
)
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
