"""PostgreSQL tables into the log: their rows as of one moment, then every change, each once and in order.

All of it goes into one partition. The book (``progress.py``) knows what the log has, the slot keeps what it does not
have yet; so after a kill at any moment, or while the server is away, nothing is lost and nothing comes twice.
"""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from threading import Event

from penstock.backoff import Patience
from penstock.errors import SourceAway
from penstock.log.config import LogConfig
from penstock.log.local import LocalLog
from penstock.sources.contract import Source
from penstock.sources.postgres.config import PostgresSourceConfig
from penstock.sources.postgres.connection import ServerAway, Waits, connect, explaining
from penstock.sources.postgres.copy.copy_blocks import Stopped
from penstock.sources.postgres.doctor_checks import examine
from penstock.sources.postgres.log_sink import Sink
from penstock.sources.postgres.progress import Keeper
from penstock.sources.postgres.replication_session import Session

SETTLED_SECONDS = 30.0
"""A session that lasted so long counts as one that worked."""
LOCK_SECONDS = 3
"""Longest wait for a table that somebody has locked, before all is tried again."""


class PostgresSource(Source[PostgresSourceConfig]):
    """Follows until it is told to stop; with ``once``, until it has all that was committed when it began."""

    def check(self) -> str:
        return examine(self.config, self._summary)

    @property
    def _summary(self) -> Path:
        return self.context.state_dir / "positions.json"

    def run(self, stopping: Event, once: bool = False) -> None:
        context = self.context
        log = LocalLog(context.log_dir, LogConfig.model_validate_json(context.log_options or "{}"))
        with log.writer(context.name) as writer:
            keeper = Keeper(self._summary, self.config.slot, log, writer)
            sink = Sink(log, writer, stopping)
            waits = Waits(Patience(context.patience))
            while not stopping.is_set():
                began = time.monotonic()
                try:
                    with explaining(), closing(connect(self.config)) as control:
                        control.execute(f"SET lock_timeout = '{LOCK_SECONDS}s'".encode())
                        Session(self.config, control, keeper, sink, stopping).run(once)
                        break
                except ServerAway as error:
                    if time.monotonic() - began > SETTLED_SECONDS:
                        waits.reset()
                    if waits.is_over():
                        keeper.save()
                        raise SourceAway(error.code, error.what, "Run again when it is there.") from error
                    waits.wait(stopping, error)
                except Stopped:
                    break
            keeper.save()
