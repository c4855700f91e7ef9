"""Loads batches into a PostgreSQL database, each table of a batch exactly once.

Every batch opens its own connection: nothing is held while there is nothing to write. Several engines may write to one
database; they take turns to change a table, not to load it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cached_property

from penstock.destinations.contract import Capabilities
from penstock.destinations.postgres.config import PostgresConfig
from penstock.destinations.postgres.connect import connect
from penstock.destinations.postgres.dialect import PostgresDialect, postgres_dialect
from penstock.destinations.postgres.session import Connection, PostgresSession
from penstock.destinations.sql.destination import SqlDestination
from penstock.destinations.sql.session import Session
from penstock.errors import PenstockError


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
        config = self.config
        return connect(
            config.url.get_secret_value(), self.dialect, config.connect_timeout, config.lock_timeout, make_schema
        )
