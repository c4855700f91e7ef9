"""Loads batches into a DuckDB file, each table of a batch exactly once.

The file is open only while a batch is written; between batches anybody can query it. While somebody else has it open,
writing raises a transient error. Rows are read from mapped files, so memory does not grow with the batch.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from penstock.destinations.contract import Capabilities
from penstock.destinations.duckdb.config import DuckdbConfig
from penstock.destinations.duckdb.dialect import DUCKDB
from penstock.destinations.duckdb.instance import lend_instance
from penstock.destinations.duckdb.mirror_applier import line
from penstock.destinations.duckdb.session import DuckdbSession, as_penstock_error
from penstock.destinations.sql.destination import SqlDestination
from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.session import Session
from penstock.errors import PenstockError, TransientError

BLOCK_BYTES = 256 * 2**10
"""DuckDB's file grows by this."""

_turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
"""Routes of one process that share a file take turns, so their schema changes cannot clash."""


class DuckdbDestination(SqlDestination[DuckdbConfig]):
    capabilities = Capabilities(transactions=True, marks=True)

    @property
    def dialect(self) -> Dialect:
        return DUCKDB

    @contextmanager
    def session(self) -> Iterator[Session]:
        with self._open() as connection:
            yield DuckdbSession(connection, self.config.path)

    @contextmanager
    def read_only_session(self) -> Iterator[Session | None]:
        if not self.config.path.exists():
            yield None
            return
        with self._open(read_only=True) as connection:
            yield DuckdbSession(connection, self.config.path)

    def check(self) -> str:
        path = self.config.path
        try:
            with self._open() as connection, tempfile.TemporaryFile(dir=path.parent) as probe:
                probe.write(bytes(BLOCK_BYTES))
                tables = connection.execute("SELECT table_name FROM duckdb_tables() WHERE NOT temporary").fetchall()
        except (TransientError, OSError) as error:
            problem = error if isinstance(error, TransientError) else as_penstock_error(path, error)
            raise PenstockError(problem.code, problem.what, problem.fix) from error
        return f"{path} can be written, {len(tables)} tables, DuckDB {duckdb.__version__}"

    @contextmanager
    def _open(self, read_only: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection for this call alone. Leaving it without a commit rolls everything back."""
        path = self.config.path
        # Changes are spread over the table: writing them into it costs more than all else, and DuckDB does it by itself
        # once its write-ahead log has 16 MB.
        checkpoint = not self.config.mirrors
        with _turns[os.path.realpath(path)], lend_instance() as instance:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                connection = instance.attach(path, read_only, checkpoint)
            except (duckdb.Error, OSError) as error:
                raise _cannot_open(path, error) from error
            yield connection


def _cannot_open(path: Path, error: Exception) -> TransientError:
    if "lock" in str(error):
        return TransientError(
            "PEN-DST-021",
            f"{path} is locked by another process.",
            f"Close the other connection; the batch is tried again. DuckDB says: {line(error)}",
        )
    return TransientError(
        "PEN-DST-022", f"{path} cannot be opened: {line(error)}", "See that it is a DuckDB file that you may write."
    )
