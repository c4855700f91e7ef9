"""State in a PostgreSQL database: as many connections as writers, and one for everything else.

Several engines may write to one database. They take turns to change a table, and at the row of a version, not to write
rows of different sources.

All connections of a store are to one server, as it was started once: another one that takes over in its place, or a
copy that was put back, may lack what was read and written through the others.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

from penstock.destinations.postgres.connect import connect
from penstock.destinations.postgres.dialect import PostgresDialect, postgres_dialect
from penstock.destinations.state.store.bookkeeping import PARTITION
from penstock.destinations.state.store.contract import StateStore
from penstock.destinations.state.store.places import PostgresPlace
from penstock.destinations.state.store.postgres_connection import PostgresStateConnection, postgres_books
from penstock.destinations.state.store.reserved_tables import OWN_TABLES, TRANSPORT
from penstock.destinations.state.store.sql_store import SqlStateStore
from penstock.errors import TransientError


@contextmanager
def open_postgres_store(place: PostgresPlace, connections: int) -> Iterator[StateStore]:
    with closing(_PostgresStateStore(place, connections)) as store:
        store.prepare()
        yield store


class _PostgresStateStore(SqlStateStore):
    def __init__(self, place: PostgresPlace, connections: int) -> None:
        super().__init__()
        self._place = place
        self._dialect = postgres_dialect(place.database_schema)
        server = _OneServer()
        self._writers = _Pool(place, self._dialect, connections, server)
        self._other = _Pool(place, self._dialect, 1, server)

    @contextmanager
    def _writer(self) -> Iterator[PostgresStateConnection]:
        with self._writers.lend() as connection:
            yield connection

    @contextmanager
    def _own(self) -> Iterator[PostgresStateConnection]:
        with self._other.lend() as connection:
            yield connection

    def prepare(self) -> None:
        """Make the tables of versions and positions, if they are not there."""
        names = [self._dialect.relation(table) for table in OWN_TABLES]
        there = (
            f"SELECT count(to_regclass(name)) FROM unnest(CAST({self._dialect.parameter('names')} AS text[])) AS name"
        )
        with self._own() as connection:
            with connection.transaction():
                if connection.fetch(there, names=names) == [(len(names),)]:
                    return
            with connection.transaction():
                # Of two who create a table at once, one would fail.
                connection.fetch(
                    "SELECT pg_advisory_xact_lock(hashtextextended(%(name)s, 0))", name=f"penstock {names[0]}"
                )
                for statement in postgres_books(self._dialect).create:
                    connection.run(statement)
                connection.run(
                    f"CREATE UNIQUE INDEX IF NOT EXISTS {self._dialect.identifier(f'{TRANSPORT}_penstock_key')}"
                    f" ON {self._dialect.relation(TRANSPORT)} (name, ({PARTITION}))"
                )

    def close(self) -> None:
        self._writers.close()
        self._other.close()


class _OneServer:
    """The server that the first connection led to. May be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started_at = ""

    def check(self, connection: PostgresStateConnection) -> None:
        """Raises ``TransientError`` if a connection leads to another server, or to one that was started anew."""
        with connection.transaction():
            ((started_at,),) = connection.fetch("SELECT CAST(pg_postmaster_start_time() AS text)")
        with self._lock:
            self._started_at = self._started_at or str(started_at)
            if started_at == self._started_at:
                return
        raise TransientError(
            "PEN-DST-149",
            f"the server of the database is not the one of {self._started_at} any more: it was started again, or"
            " another one has taken over.",
            "Nothing to do: what was written meanwhile is looked up again.",
        )


class _Pool:
    """Connections, each made when it is first needed and again when it broke."""

    def __init__(self, place: PostgresPlace, dialect: PostgresDialect, size: int, server: _OneServer) -> None:
        self._place = place
        self._server = server
        self._dialect = dialect
        # The one that was used last is lent first: others may never be needed.
        self._idle: queue.LifoQueue[PostgresStateConnection | None] = queue.LifoQueue()
        self._size = size
        self._closed = False
        for _ in range(size):
            self._idle.put(None)

    @contextmanager
    def lend(self) -> Iterator[PostgresStateConnection]:
        connection = self._idle.get()
        try:
            if connection is None or not connection.is_usable:
                connection = None
                connection = self._connect()
            yield connection
        finally:
            if self._closed and connection is not None:
                connection.close()
            else:
                self._idle.put(connection)

    def _connect(self) -> PostgresStateConnection:
        place = self._place
        made = PostgresStateConnection(
            connect(place.url, self._dialect, place.connect_timeout, place.lock_timeout), self._dialect
        )
        try:
            self._server.check(made)
        except TransientError:
            made.close()
            raise
        return made

    def close(self) -> None:
        """Close those that are idle now, and others when they are given back."""
        self._closed = True
        for _ in range(self._size):
            try:
                connection = self._idle.get_nowait()
            except queue.Empty:
                return
            if connection is not None:
                connection.close()
