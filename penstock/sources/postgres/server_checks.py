"""What the server must fulfil before we begin; each check says clearly what is missing."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import PenstockError
from penstock.sources.postgres.catalog.table_catalog import Table
from penstock.sources.postgres.connection import Connection, ServerUnavailable

OLDEST_VERSION = 140_000
_SHOWN = 5


def check_server(connection: Connection) -> str:
    """The server's version, if it is one that can be followed."""
    row = connection.execute(_SERVER).fetchone()
    assert row is not None
    version, number, wal_level, encoding, is_standby = row
    if int(str(number)) < OLDEST_VERSION:
        raise PenstockError(
            "PEN-PGS-002", f"the server is PostgreSQL {version}; changes are read from 14 on.", "Upgrade the server."
        )
    if is_standby:
        raise ServerUnavailable(
            "PEN-PGS-016", "the server is a standby: tables are followed on the primary.", "Point `url` to the primary."
        )
    if wal_level != "logical":
        raise PenstockError(
            "PEN-PGS-001",
            f"the server's wal_level is '{wal_level}': it does not write down what logical replication needs.",
            "ALTER SYSTEM SET wal_level = logical; then restart the server.",
        )
    if encoding == "SQL_ASCII":
        raise PenstockError(
            "PEN-PGS-012",
            "the database has the encoding SQL_ASCII: nothing says which characters its bytes mean.",
            "Follow a database with a real encoding (UTF8).",
        )
    return str(version)


def check_replication_right(connection: Connection, reason: PenstockError) -> PenstockError:
    """Why a replication connection was refused: our role lacks the right, or the server's own reason."""
    row = connection.execute("SELECT rolreplication OR rolsuper, rolname FROM pg_roles WHERE rolname = current_user")
    found = row.fetchone()
    if found is None or found[0]:
        return reason
    return PenstockError(
        "PEN-PGS-003",
        f"the role '{found[1]}' may not replicate: {reason.what}",
        f'ALTER ROLE "{found[1]}" REPLICATION; (managed servers have a role to grant instead, such as rds_replication)',
    )


def check_tables(tables: Sequence[Table], patterns: Sequence[str]) -> None:
    """Check that there are tables to follow, and that we may read them."""
    if not tables:
        raise PenstockError(
            "PEN-PGS-017",
            f"no table of the database is meant by `tables`: {', '.join(patterns)}.",
            "Write schema.table; `*` stands for any text. Is it the right database?",
        )
    hidden = [table for table in tables if not table.readable]
    if hidden:
        raise PenstockError(
            "PEN-PGS-008",
            f"our role may not read {listing(hidden)}.",
            f"GRANT SELECT ON {hidden[0].quoted} TO the role, or leave it out: '!{hidden[0].namespace}'.",
        )


def check_identities(tables: Sequence[Table]) -> None:
    """Check that updates and deletes of all tables can identify their rows."""
    nameless = [table for table in tables if not table.has_identity]
    if nameless:
        raise PenstockError(
            "PEN-PGS-004",
            f"rows of {listing(nameless)} have no identity (no primary key, a deferrable one, or another one in a"
            " partition): once published, their updates and deletes would fail in the database, or not say which row"
            " they are about.",
            f"Add a primary key that is not deferrable, or: ALTER TABLE {nameless[0].quoted} REPLICA IDENTITY FULL (and"
            f" so for its partitions); or leave it out: '!{nameless[0].namespace}'.",
        )


def listing(tables: Sequence[Table]) -> str:
    """The names of the first few tables, and how many more there are."""
    names = ", ".join(table.namespace for table in tables[:_SHOWN])
    return names if len(tables) <= _SHOWN else f"{names} and {len(tables) - _SHOWN} more"


_SERVER = """
SELECT current_setting('server_version'), current_setting('server_version_num')::int4, current_setting('wal_level'),
    current_setting('server_encoding'), pg_is_in_recovery()"""
