"""Loads batches into a DuckDB file, each table of a batch exactly once.

The file is open only while a batch is written; between batches anybody can query it. While somebody else has it open,
writing raises a transient error. Rows are read from mapped files, so memory does not grow with the batch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import duckdb

from penstock.destinations.contract import Capabilities
from penstock.destinations.duckdb.config import DuckdbConfig
from penstock.destinations.duckdb.dialect import DUCKDB
from penstock.destinations.duckdb.open_file import open_file
from penstock.destinations.duckdb.session import DuckdbSession, as_penstock_error
from penstock.destinations.sql.destination import SqlDestination
from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.session import Session
from penstock.errors import PenstockError, TransientError

BLOCK_BYTES = 256 * 2**10
"""DuckDB's file grows by this."""


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

    def _open(self, read_only: bool = False) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        # Changes are spread over the table: writing them into it costs more than all else, and DuckDB does it by itself
        # once its write-ahead log has 16 MB.
        return open_file(self.config.path, read_only, checkpoint=not self.config.mirrors)
