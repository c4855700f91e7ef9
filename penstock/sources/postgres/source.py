"""PostgreSQL tables into the log: their rows as of one moment, then every change, each once and in order.

All of it goes into one partition. ``progress.py`` knows what the log has, the slot keeps what it does not have yet. So
a kill at any moment, or an unavailable server, loses and doubles nothing.
"""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from threading import Event

from penstock.backoff import Patience
from penstock.errors import PenstockError, SourceUnavailable
from penstock.log.config import LogConfig
from penstock.log.local_log import LocalLog
from penstock.sources.contract import Source
from penstock.sources.postgres.catalog.table_catalog import tables
from penstock.sources.postgres.config import PostgresConfig
from penstock.sources.postgres.connection import Connection, ServerUnavailable, Waits, connect, translate_errors
from penstock.sources.postgres.copy.copy_blocks import Stopped
from penstock.sources.postgres.log_sink import Sink
from penstock.sources.postgres.progress import ProgressStore, uses_slot
from penstock.sources.postgres.replication_session import Session
from penstock.sources.postgres.server_checks import (
    check_identities,
    check_replication_right,
    check_server,
    check_tables,
)
from penstock.sources.postgres.stream.publication import check_publication
from penstock.sources.postgres.stream.slot import check_free_slots, has_slot, slot_lost_error

SETTLED_SECONDS = 30.0
"""A session that lasted this long counts as successful."""
LOCK_SECONDS = 3
"""How long to wait for a locked table before the session is tried again."""


class PostgresSource(Source[PostgresConfig]):
    """Follows until it is told to stop; with ``once``, until it has all that was committed when it began."""

    def check(self) -> str:
        return check_source(self.config, self._summary)

    @property
    def _summary(self) -> Path:
        return self.context.state_dir / "positions.json"

    def run(self, stopping: Event, once: bool = False) -> None:
        context = self.context
        log = LocalLog(context.log_dir, LogConfig.model_validate_json(context.log_options or "{}"))
        with log.writer(context.name) as writer:
            store = ProgressStore(self._summary, self.config.slot, log, writer)
            sink = Sink(log, writer, stopping)
            waits = Waits(Patience(context.patience))
            while not stopping.is_set():
                began = time.monotonic()
                try:
                    with translate_errors(), closing(connect(self.config)) as control:
                        control.execute(f"SET lock_timeout = '{LOCK_SECONDS}s'".encode())
                        Session(self.config, control, store, sink, stopping).run(once)
                        break
                except ServerUnavailable as error:
                    if time.monotonic() - began > SETTLED_SECONDS:
                        waits.reset()
                    if waits.is_over():
                        store.save()
                        raise SourceUnavailable(error.code, error.what, "Run again when it is there.") from error
                    waits.wait(stopping, error)
                except Stopped:
                    break
            store.save()


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
