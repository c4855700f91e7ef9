"""What ``penstock doctor`` says of the database. Looks only, and may run beside the source."""

from __future__ import annotations

from contextlib import closing

from penstock.errors import PenstockError
from penstock.sources.postgres.catalog import tables
from penstock.sources.postgres.checks import check_identities, check_replication_right, check_server, check_tables
from penstock.sources.postgres.config import PostgresSourceConfig
from penstock.sources.postgres.connecting import Connection, connect, explaining
from penstock.sources.postgres.slots import has_slot


def examine(config: PostgresSourceConfig) -> str:
    """Whether everything is there to begin, in a sentence. Raises ``PenstockError`` for what is not."""
    with explaining(), closing(connect(config)) as connection:
        version = check_server(connection)
        found = tables(connection, config.publication, config.tables)
        check_tables(found, config.tables)
        check_identities(found)
        try:
            connect(config, replication=True).close()
        except PenstockError as error:
            raise check_replication_right(connection, error) from error
        count = f"{len(found)} table{'s' if len(found) != 1 else ''}"
        return f"PostgreSQL {version}, {count}; {_slot(connection, config.slot)}"


def _slot(connection: Connection, name: str) -> str:
    if not has_slot(connection, name):
        return f"no slot '{name}' yet: made at the first run"
    row = connection.execute(_KEPT, (name,)).fetchone()
    return f"the slot '{name}' keeps {row[0] if row else 'nothing'}"


_KEPT = """
SELECT pg_size_pretty(greatest(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0))
FROM pg_replication_slots WHERE slot_name = %s"""
