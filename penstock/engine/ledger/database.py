"""The database under the ledger: connecting to it, its tables and their version, and how it is read and written.

Nothing is ever half written: ``writing`` is one transaction, durable when it ends.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from penstock.config.secrets import is_secret_name
from penstock.engine.ledger.accounts import EARLIER
from penstock.engine.ledger.ledger_tables import LEDGER_VERSION, Tables, create_statements, tables
from penstock.errors import LedgerError, LedgerUnavailable
from penstock.redaction import MASK, redacted


def sqlite_url(path: Path) -> str:
    return f"sqlite:///{path}"


def shown_url(url: str) -> str:
    """The URL without the secrets that it may hold."""
    shown = sa.make_url(url)
    plain = {name: MASK if is_secret_name(name) else value for name, value in shown.query.items()}
    return redacted(shown.set(query=plain).render_as_string(hide_password=True))


_PATIENCE = 30
"""Seconds for which a writer waits for another one in SQLite."""


class Database:
    """Open it with ``open``. Safe to use from several threads and processes at once."""

    def __init__(self, engine: sa.Engine, schema: str | None) -> None:
        self._engine = engine
        self._t = tables(schema)
        self.scope = ""

    @classmethod
    def open(cls, url: str, pipeline: str) -> Self:
        """Connect, and create the tables if this is a new ledger."""
        engine = _sqlite(url) if url.startswith("sqlite") else _server(url)
        schema = None if engine.dialect.name == "sqlite" else f"penstock_{pipeline}"
        ledger = cls(engine, schema)
        try:
            ledger._create(schema)
        except SQLAlchemyError as error:
            where = shown_url(url)
            raise LedgerUnavailable(
                "PEN-LGR-001",
                f"the ledger at {where} cannot be opened: {getattr(error, 'orig', error)}.",
                "Check `ledger.url` and that the database is up.",
            ) from error
        return ledger

    def close(self) -> None:
        self._engine.dispose()

    @property
    def _way_to_a_new_ledger(self) -> str:
        """What to do to begin with one, as the end of a sentence."""
        schema = self._t.metadata.schema
        if schema is None:
            return "start with a new `data_dir`, and with a new `ledger.url` if there is one."
        return (
            "begin with a new ledger: give this pipeline another `name`, or move its ledger away: ALTER SCHEMA"
            f' "{schema}" RENAME TO "{schema}_old";'
        )

    def _create(self, schema: str | None) -> None:
        with self.writing() as connection:
            if schema is not None:
                connection.execute(sa.schema.CreateSchema(schema, if_not_exists=True))
            self._upgrade_tables(connection, schema)
            about = {row.key: row.value for row in connection.execute(sa.select(self._t.about))}
            if not about:
                about = {"scope": uuid.uuid4().hex, "version": str(LEDGER_VERSION)}
                connection.execute(
                    sa.insert(self._t.about), [{"key": key, "value": value} for key, value in about.items()]
                )
            if int(about["version"]) != LEDGER_VERSION:
                raise LedgerError(
                    "PEN-LGR-006",
                    f"this ledger is of version {about['version']}; this Penstock reads version {LEDGER_VERSION}.",
                    f"Run the Penstock release that wrote it, or {self._way_to_a_new_ledger}",
                )
        self.scope = about["scope"]

    def _upgrade_tables(self, connection: sa.Connection, schema: str | None) -> None:
        """Add what an older ledger lacks: tables, columns, constraints, and the totals that its lists give."""
        there = set(sa.inspect(connection).get_table_names(schema))
        for name, statement in create_statements(schema, connection.dialect.name).items():
            if name not in there:
                connection.exec_driver_sql(statement)
        if not there:
            return
        for table in self._t.metadata.tables.values():
            if table.name in there:
                _add_columns(connection, table, schema)
                _add_checks(connection, table, schema)
        if self._t.table_totals.name not in there:
            self._sum_up_tables(connection)

    def _sum_up_tables(self, connection: sa.Connection) -> None:
        d, b = self._t.deliveries, self._t.batches
        settled = sa.and_(b.c.route == d.c.route, b.c.number == d.c.number, b.c.committed_at.is_not(None))
        sums = sa.select(d.c.route, d.c.target, sa.func.sum(d.c.rows), sa.func.sum(d.c.merged))
        totals = sums.select_from(d.join(b, settled)).group_by(d.c.route, d.c.target)
        t = self._t.table_totals
        connection.execute(sa.insert(t).from_select(["route", "target", "rows", "merged"], totals))
        counted = {
            row.route: int(row[1])
            for row in connection.execute(sa.select(t.c.route, sa.func.sum(t.c.rows)).group_by(t.c.route))
        }
        for route, loaded in connection.execute(sa.select(self._t.totals.c.route, self._t.totals.c.loaded)).all():
            # Batches are listed for a while only; the tables of older ones are not known any more.
            if earlier := loaded - counted.get(route, 0):
                connection.execute(sa.insert(t).values(route=route, target=EARLIER, rows=earlier, merged=0))

    @property
    def names(self) -> Tables:
        """The ledger's tables, for modules that keep their own rows in them."""
        return self._t

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        with self._engine.begin() as connection:
            # A transaction of SQLite that reads first and writes later can fail half way with "database is locked"
            # instead of waiting: one that means to write takes the write lock at once.
            self._begin(connection, "BEGIN IMMEDIATE")
            yield connection

    @contextmanager
    def writing_at_once(self) -> Iterator[sa.Connection | None]:
        """Like ``writing``, if nobody else writes just now; ``None`` if somebody does, or if it may be far away."""
        if self._engine.dialect.name != "sqlite":
            yield None
            return
        with self._engine.connect() as connection:
            if not _begin_without_waiting(connection):
                yield None
                return
            yield connection
            connection.commit()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        with self._engine.connect() as connection:
            self._begin(connection, "BEGIN")
            yield connection

    def _begin(self, connection: sa.Connection, statement: str) -> None:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql(statement)

    def rows(self, query: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        """All rows of one query."""
        with self.reading() as connection:
            return connection.execute(query).all()

    @contextmanager
    def reading_snapshot(self) -> Iterator[sa.Connection]:
        """Like ``reading``, but everything is read as of one moment. SQLite does so anyway."""
        with self.reading() as connection:
            if connection.dialect.name != "sqlite":
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection


def _begin_without_waiting(connection: sa.Connection) -> bool:
    """Begin to write in SQLite; ``False`` if another connection does."""
    bare = connection.connection.driver_connection
    assert isinstance(bare, _DurableConnection), "it is one of ours"
    bare.wait_for_others(0)
    try:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    except OperationalError:
        # Whatever else it is, who waits is told.
        return False
    finally:
        bare.wait_for_others(_PATIENCE)
    return True


_ROWS_AT_ONCE = 1_000
"""SQLite takes some 32 thousand values in a statement."""


def put_rows(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, object]]) -> None:
    """Insert rows, which have the same columns; one whose key is there replaces that one."""
    if connection.dialect.name == "sqlite":
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            _put_rows_at_once(connection, table, rows[start : start + _ROWS_AT_ONCE])
        return
    statement = postgresql.insert(table)
    key = [column.name for column in table.primary_key]
    others = {name: statement.excluded[name] for name in rows[0] if name not in key}
    connection.execute(statement.on_conflict_do_update(index_elements=key, set_=others), list(rows))


def _put_rows_at_once(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, object]]) -> None:
    """In one step of SQLite: before each, and after it, a thread waits for others of the process."""
    quote = connection.dialect.identifier_preparer.quote_identifier
    key = [quote(column.name) for column in table.primary_key]
    fields = list(rows[0])
    names = [quote(name) for name in fields]
    changes = ", ".join(f"{name} = excluded.{name}" for name in names if name not in key)
    marks = ", ".join([f"({', '.join('?' * len(names))})"] * len(rows))
    connection.exec_driver_sql(
        f"INSERT INTO {quote(table.name)} ({', '.join(names)}) VALUES {marks}"
        f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}",
        tuple(row[name] for row in rows for name in fields),
    )


def put_row(
    connection: sa.Connection,
    table: sa.Table,
    key: Mapping[str, object],
    values: Mapping[str, Any],
    new: Mapping[str, Any],
) -> None:
    """Set these values in the row of a key; where there is none, insert it with ``new`` instead."""
    if connection.execute(sa.update(table).filter_by(**key).values(**values)).rowcount == 0:
        connection.execute(sa.insert(table).values(**key, **new))


def add_to_row(connection: sa.Connection, table: sa.Table, key: Mapping[str, str], numbers: Mapping[str, int]) -> None:
    """Add to the numbers of a row, which is new if there is none."""
    put_row(connection, table, key, {name: table.c[name] + number for name, number in numbers.items()}, numbers)


def _add_columns(connection: sa.Connection, table: sa.Table, schema: str | None) -> None:
    there = {column["name"] for column in sa.inspect(connection).get_columns(table.name, schema)}
    for column in table.columns:
        if column.name not in there:
            name = connection.dialect.identifier_preparer.format_table(table)
            definition = sa.schema.CreateColumn(column).compile(dialect=connection.dialect)
            connection.execute(sa.text(f"ALTER TABLE {name} ADD COLUMN {definition}"))


def _add_checks(connection: sa.Connection, table: sa.Table, schema: str | None) -> None:
    wanted = {check.name: check for check in table.constraints if isinstance(check, sa.CheckConstraint)}
    there = (
        {check["name"] for check in sa.inspect(connection).get_check_constraints(table.name, schema)} if wanted else ()
    )
    missing = [check for name, check in wanted.items() if name not in there]
    if not missing:
        return
    if connection.dialect.name != "sqlite":
        for check in missing:
            connection.execute(sa.schema.AddConstraint(check))
        return
    # SQLite adds no constraint to a table that is there.
    before = sa.Table(f"{table.name}_before", sa.MetaData(), *(sa.Column(column.name) for column in table.columns))
    connection.execute(sa.text(f"ALTER TABLE {table.name} RENAME TO {before.name}"))
    table.create(connection)
    names = [column.name for column in table.columns]
    connection.execute(sa.insert(table).from_select(names, sa.select(*(before.c[name] for name in names))))
    before.drop(connection)


def _sqlite(url: str) -> sa.Engine:
    # Transactions are begun by ``Database``.
    settings = {
        "timeout": _PATIENCE,
        "check_same_thread": False,
        "isolation_level": None,
        "factory": _DurableConnection,
    }
    return sa.create_engine(url, connect_args=settings)


class _DurableConnection(sqlite3.Connection):
    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.execute("PRAGMA journal_mode=WAL")
        self.execute("PRAGMA synchronous=FULL")
        self.wait_for_others(_PATIENCE)

    def wait_for_others(self, seconds: int) -> None:
        """Set for how long a statement waits while another connection writes."""
        self.execute(f"PRAGMA busy_timeout={1_000 * seconds}")


def _server(url: str) -> sa.Engine:
    try:
        parsed = sa.make_url(url)
        if parsed.drivername in ("postgres", "postgresql"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        return sa.create_engine(parsed, pool_pre_ping=True)
    except (SQLAlchemyError, ModuleNotFoundError, ValueError) as error:
        raise LedgerError(
            "PEN-LGR-007",
            f"the ledger's URL cannot be used: {error}.",
            "Write it as postgresql://user:password@host/database.",
        ) from error
