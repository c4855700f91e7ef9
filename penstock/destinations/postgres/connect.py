"""Connects to a PostgreSQL server, with the settings that writing needs."""

from __future__ import annotations

import psycopg

from penstock.destinations.postgres.dialect import PostgresDialect
from penstock.destinations.postgres.error_translation import About, as_penstock_error
from penstock.destinations.postgres.session import Connection
from penstock.errors import TransientError


def connect(
    url: str, dialect: PostgresDialect, connect_timeout: float, lock_timeout: float, make_schema: bool = True
) -> Connection:
    """A connection that commits by itself, with times in UTC. The dialect's schema is made if it is missing. Raises
    ``TransientError`` if it cannot be had."""
    schema = dialect.identifier(dialect.database_schema)
    try:
        connection = psycopg.connect(
            url,
            autocommit=True,
            connect_timeout=max(1, round(connect_timeout)),
            application_name="penstock",
            client_encoding="utf8",
            # To notice a server that disappears without closing the connection.
            keepalives_idle=30,
            tcp_user_timeout=60_000,
        )
        connection.execute("SET TIME ZONE 'UTC'")
        # A table that somebody has locked must not hold up the others.
        connection.execute(f"SET lock_timeout = {max(1, round(lock_timeout * 1000))}".encode())
        found = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (dialect.database_schema,))
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
