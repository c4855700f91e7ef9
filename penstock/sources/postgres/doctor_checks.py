"""What ``penstock doctor`` says about the database. Read-only; may run beside the source."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from penstock.errors import PenstockError
from penstock.sources.postgres.catalog.table_catalog import tables
from penstock.sources.postgres.config import PostgresConfig
from penstock.sources.postgres.connection import Connection, connect, translate_errors
from penstock.sources.postgres.progress import uses_slot
from penstock.sources.postgres.server_checks import (
    check_identities,
    check_replication_right,
    check_server,
    check_tables,
)
from penstock.sources.postgres.stream.publication import check_publication
from penstock.sources.postgres.stream.slot import check_free_slots, has_slot, slot_lost_error


def check_source(config: PostgresConfig, summary: Path) -> str:
    """Check that the source can start; returns one sentence. Raises ``PenstockError`` for what is missing.

    ``summary``: the source's saved progress.
    """
    with translate_errors(), closing(connect(config)) as connection:
        version = check_server(connection)
        found = tables(connection, config.publication, config.tables)
        check_tables(found, config.tables)
        check_identities(found)
        check_publication(connection, config.publication)
        try:
            connect(config, replication=True).close()
        except PenstockError as error:
            raise check_replication_right(connection, error) from error
        count = f"{len(found)} table{'s' if len(found) != 1 else ''}"
        return f"PostgreSQL {version}, {count}; {_slot(connection, config.slot, uses_slot(summary, config.slot))}"


def _slot(connection: Connection, name: str, used: bool) -> str:
    if not has_slot(connection, name):
        if used:
            raise slot_lost_error(name, "it does not exist any more")
        check_free_slots(connection)
        return f"no slot '{name}' yet: made at the first run"
    row = connection.execute(_KEPT, (name,)).fetchone()
    return f"the slot '{name}' keeps {row[0] if row else 'nothing'}"


_KEPT = """
SELECT pg_size_pretty(greatest(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0))
FROM pg_replication_slots WHERE slot_name = %s"""
