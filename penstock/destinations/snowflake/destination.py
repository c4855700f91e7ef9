"""Loads batches into a Snowflake schema, each table of a batch exactly once.

Every batch opens its own connection: nothing is held, and no warehouse kept awake, while there is nothing to write.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.destinations.contract import Capabilities
from penstock.destinations.snowflake.config import SnowflakeConfig
from penstock.destinations.snowflake.dialect import SnowflakeDialect, snowflake_dialect
from penstock.destinations.snowflake.session import SnowflakeSession, as_penstock_error
from penstock.destinations.sql.destination import SqlDestination
from penstock.destinations.sql.session import Session
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from snowflake.connector import SnowflakeConnection


class SnowflakeDestination(SqlDestination[SnowflakeConfig]):
    capabilities = Capabilities(transactions=True, marks=True)

    @cached_property
    def dialect(self) -> SnowflakeDialect:
        return snowflake_dialect(self.config.database, self.config.database_schema, self.config.float)

    @contextmanager
    def session(self) -> Iterator[Session]:
        with closing(self._connect()) as connection:
            yield SnowflakeSession(connection, self.dialect)

    @contextmanager
    def read_only_session(self) -> Iterator[Session | None]:
        with closing(self._connect(make_schema=False)) as connection:
            yield SnowflakeSession(connection, self.dialect)

    def check(self) -> str:
        with closing(self._connect()) as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT CURRENT_VERSION()")
            found = cursor.fetchone()
        return f"Snowflake {found[0] if found else ''} answers, in the schema {self.dialect.database_schema}"

    def _connect(self, make_schema: bool = True) -> SnowflakeConnection:
        try:
            import snowflake.connector
            from snowflake.connector.errors import Error
        except ImportError as error:
            raise PenstockError(
                "PEN-DST-044", "the Snowflake driver is not installed.", "pip install 'penstock[snowflake]'"
            ) from error
        timeout = max(1, round(self.config.connect_timeout))
        options = {
            "account": self.config.account,
            "user": self.config.user,
            "role": self.config.role,
            "warehouse": self.config.warehouse,
            **self._secret(),
        }
        try:
            connection = snowflake.connector.connect(
                **{name: value for name, value in options.items() if value is not None},
                database=self.dialect.database,
                schema=self.dialect.database_schema,
                application="penstock",
                autocommit=True,
                login_timeout=timeout,
                session_parameters={"TIMEZONE": "UTC", "TIMESTAMP_INPUT_FORMAT": "AUTO", "QUERY_TAG": "penstock"},
            )
            if make_schema:
                self._make_schema(connection)
        except Error as error:
            raise as_penstock_error(error, refuses=False) from error
        return connection

    def _secret(self) -> dict[str, str | None]:
        config = self.config
        if config.private_key_path is None:
            return {"password": config.password.get_secret_value() if config.password else None}
        encrypted = config.private_key_password
        return {
            "authenticator": "SNOWFLAKE_JWT",
            "private_key_file": str(config.private_key_path),
            "private_key_file_pwd": encrypted.get_secret_value() if encrypted else None,
        }

    def _make_schema(self, connection: SnowflakeConnection) -> None:
        database, schema = map(self.dialect.identifier, (self.dialect.database, self.dialect.database_schema))
        cursor = connection.cursor()
        there = f"SELECT COUNT(*) FROM {database}.INFORMATION_SCHEMA.SCHEMATA WHERE SCHEMA_NAME = %s"
        cursor.execute(there, (self.dialect.database_schema,))
        found = cursor.fetchone()
        if found is not None and not found[0]:
            cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {database}.{schema}")
