"""Loads batches into Amazon Redshift, each table of a batch exactly once.

Redshift speaks PostgreSQL's protocol, and reads the rows itself from files in a bucket. Every batch opens its own
connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.destinations.contract import Capabilities
from penstock.destinations.redshift.config import RedshiftConfig
from penstock.destinations.redshift.dialect import RedshiftDialect, redshift_dialect
from penstock.destinations.redshift.stage_files import Bucket
from penstock.destinations.sql.destination import SqlDestination
from penstock.destinations.sql.session import Session
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.destinations.redshift.session import Connection


class RedshiftDestination(SqlDestination[RedshiftConfig]):
    capabilities = Capabilities(transactions=True, marks=True)

    @cached_property
    def dialect(self) -> RedshiftDialect:
        return redshift_dialect(self.config.database_schema, self.config.float)

    @property
    def bucket(self) -> Bucket:
        return Bucket(self.config.staging, self.config.iam_role, self.config.region)

    @contextmanager
    def session(self) -> Iterator[Session]:
        with closing(self._open_connection()) as connection:
            from penstock.destinations.redshift.session import RedshiftSession

            yield RedshiftSession(connection, self.dialect, self.bucket)

    @contextmanager
    def read_only_session(self) -> Iterator[Session | None]:
        with closing(self._open_connection(make_schema=False)) as connection:
            from penstock.destinations.redshift.session import RedshiftSession

            yield RedshiftSession(connection, self.dialect, self.bucket)

    def check(self) -> str:
        """Checks the database and the bucket; only the first load shows whether Redshift may read the bucket."""
        schema = self.config.database_schema
        with closing(self._open_connection()) as connection:
            found = connection.execute("SELECT version(), has_schema_privilege(%s, 'CREATE')", (schema,)).fetchone()
        version, may_create = found or ("", False)
        if not may_create:
            raise PenstockError(
                "PEN-DST-035",
                f"this user may not create tables in the schema '{schema}'.",
                f"GRANT CREATE ON SCHEMA {self.dialect.identifier(schema)} TO the user.",
            )
        try:
            with self.bucket.folder() as folder:
                folder.probe()
        except OSError as error:
            raise PenstockError(
                "PEN-DST-036",
                f"{self.config.staging} cannot be written: {str(error).partition(chr(10))[0]}",
                "Set AWS credentials for this process that may put and delete objects there.",
            ) from error
        return f"{str(version).rpartition(', ')[2]} can be written, {self.config.staging} too"

    def _open_connection(self, make_schema: bool = True) -> Connection:
        import psycopg

        from penstock.destinations.redshift.session import as_penstock_error

        schema = self.config.database_schema
        try:
            connection = self.connect()
            connection.execute("SET TIME ZONE 'UTC'")
            found = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,))
            if make_schema and found.fetchone() is None:
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self.dialect.identifier(schema)}".encode())
        except psycopg.Error as error:
            raise as_penstock_error(error, refuses=False) from error
        return connection

    def connect(self) -> Connection:
        """A connection that commits each statement."""
        import psycopg

        return psycopg.connect(
            self.config.url.get_secret_value(),
            autocommit=True,
            # Redshift calls its encoding UNICODE and has no DEALLOCATE ALL.
            client_encoding="utf8",
            prepare_threshold=None,
            connect_timeout=max(1, round(self.config.connect_timeout)),
            application_name="penstock",
            keepalives_idle=30,
            tcp_user_timeout=60_000,
        )
