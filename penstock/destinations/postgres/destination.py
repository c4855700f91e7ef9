"""Loads batches into a PostgreSQL database, each table of a batch exactly once.

Every batch opens its own connection: nothing is held while there is nothing to write. Several engines may write to one
database; they take turns to change a table, not to load it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cached_property

import psycopg

from penstock.destinations.contract import Capabilities
from penstock.destinations.postgres.config import PostgresConfig
from penstock.destinations.postgres.dialect import PostgresDialect, postgres_dialect
from penstock.destinations.postgres.error_translation import About, as_penstock_error
from penstock.destinations.postgres.session import Connection, PostgresSession
from penstock.destinations.sql.destination import SqlDestination
from penstock.destinations.sql.session import Session
from penstock.errors import PenstockError, TransientError


class PostgresDestination(SqlDestination[PostgresConfig]):
    capabilities = Capabilities(transactions=True, marks=True)

    @cached_property
    def dialect(self) -> PostgresDialect:
        return postgres_dialect(self.config.database_schema, self.config.float)

    @contextmanager
    def session(self) -> Iterator[Session]:
        with closing(self._connect()) as connection:
            yield PostgresSession(connection, self.dialect, self.config.mirrors)

    @contextmanager
    def read_only_session(self) -> Iterator[Session | None]:
        with closing(self._connect(make_schema=False)) as connection:
            yield PostgresSession(connection, self.dialect, self.config.mirrors)

    def check(self) -> str:
        with closing(self._connect()) as connection:
            found = connection.execute(
                "SELECT current_setting('server_version'), has_schema_privilege(%s, 'CREATE')",
                (self.config.database_schema,),
            ).fetchone()
        version, may_create = found or ("", False)
        if not may_create:
            raise PenstockError(
                "PEN-DST-028",
                f"this user may not create tables in the schema '{self.config.database_schema}'.",
                f"GRANT CREATE ON SCHEMA {self.dialect.identifier(self.config.database_schema)} TO the user.",
            )
        return f"PostgreSQL {version} can be written"

    def _connect(self, make_schema: bool = True) -> Connection:
        schema = self.dialect.identifier(self.config.database_schema)
        try:
            connection = psycopg.connect(
                self.config.url.get_secret_value(),
                autocommit=True,
                connect_timeout=max(1, round(self.config.connect_timeout)),
                application_name="penstock",
                client_encoding="utf8",
                # To notice a server that disappears without closing the connection.
                keepalives_idle=30,
                tcp_user_timeout=60_000,
            )
            connection.execute("SET TIME ZONE 'UTC'")
            # A table that somebody has locked must not hold up the others.
            connection.execute(f"SET lock_timeout = {max(1, round(self.config.lock_timeout * 1000))}".encode())
            found = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (self.config.database_schema,))
            if make_schema and found.fetchone() is None:
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}".encode())
        except psycopg.ProgrammingError as error:
            if error.sqlstate is not None:
                raise as_penstock_error(error, About.CONNECTION) from error
            # The url itself is wrong. The driver's message quotes it, and it may hold a password.
            raise TransientError(
                "PEN-DST-026",
                "the `url` of the database cannot be read.",
                "Write postgresql://user:password@host:5432/database.",
            ) from None
        except psycopg.Error as error:
            raise as_penstock_error(error, About.CONNECTION) from error
        return connection
