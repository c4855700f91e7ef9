"""Batches into a DuckDB file: one transaction each, with the batch's mark in it, so each is there exactly once.

The file is open only while a batch is written; between batches anybody can query it. While somebody else has it open, a
write is a transient error. Rows arrive in log order, file by file, so memory does not grow with the batch.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb

from penstock import faults
from penstock.destinations.contract import Batch, Capabilities, Destination, Part, Receipt, Stager, TableReceipt
from penstock.destinations.duckdb.config import DuckdbConfig
from penstock.destinations.duckdb.dialect import DUCKDB, MAX_NAME
from penstock.destinations.duckdb.loading import load_table
from penstock.destinations.duckdb.marks import has_batch, mark_batch
from penstock.destinations.sql.naming import TableNames
from penstock.destinations.sql.staging import TypedStager
from penstock.errors import PenstockError, RefusedError, TransientError

_turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
"""Routes of one process that share a file take turns: their schema changes cannot clash, it is free between them."""


class DuckdbDestination(Destination[DuckdbConfig]):
    capabilities = Capabilities(transactions=True, queryable=True, max_name=MAX_NAME)

    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        for asked in casts.values():
            DUCKDB.cast_type(asked)  # a type that DuckDB does not have stops the task, before any record is taken
        return TypedStager(directory, TableNames(self.config.table, MAX_NAME), casts, MAX_NAME)

    def write(self, batch: Batch, parts: Sequence[Part]) -> Receipt:
        if not parts:
            return Receipt()
        tables: dict[str, list[Part]] = {}
        for part in sorted(parts, key=lambda part: (part.partition, part.first_offset)):
            tables.setdefault(part.table, []).append(part)
        receipts = [TableReceipt(table, sum(part.rows for part in files)) for table, files in tables.items()]
        with self._open() as connection:
            connection.execute("BEGIN")
            if has_batch(connection, batch):
                connection.execute("ROLLBACK")
                return Receipt(receipts, repeated=True)
            for table, files in tables.items():
                load_table(connection, table, files)
            mark_batch(connection, batch)
            faults.reach("destination.writing")
            connection.execute("COMMIT")
            faults.reach("destination.committed")
        return Receipt(receipts)

    def check(self) -> str:
        path = self.config.path
        try:
            with self._open() as connection:
                connection.execute("CREATE TEMP TABLE probe (a INTEGER)")
                tables = connection.execute("SELECT table_name FROM duckdb_tables() WHERE NOT temporary").fetchall()
        except TransientError as error:
            raise PenstockError(error.code, error.what, error.fix) from error
        return f"{path} can be written, {len(tables)} tables, DuckDB {duckdb.__version__}"

    @contextmanager
    def _open(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection of this call's own. Leaving it without a commit takes everything back."""
        path = self.config.path
        with _turns[os.path.realpath(path)]:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                connection = duckdb.connect(path)
            except (duckdb.Error, OSError) as error:
                raise _not_opened(path, error) from error
            with closing(connection):
                try:
                    connection.execute("SET TimeZone = 'UTC'")
                    yield connection
                except duckdb.InternalError:
                    raise
                except (duckdb.Error, OSError) as error:
                    raise _explained(path, error) from error


def _not_opened(path: Path, error: Exception) -> TransientError:
    if "lock" in str(error):
        return TransientError(
            "PEN-DST-021",
            f"{path} is locked by another process.",
            f"Close the other connection; the batch is tried again. DuckDB says: {_line(error)}",
        )
    return TransientError("PEN-DST-022", f"{path} cannot be opened: {_line(error)}", "The batch is tried again.")


def _explained(path: Path, error: Exception) -> TransientError | RefusedError:
    """Whether the file cannot take the batch now (the disk, the memory, another transaction) or never will."""
    if isinstance(error, (duckdb.OperationalError, duckdb.FatalException, duckdb.InterruptException, OSError)):
        return TransientError("PEN-DST-023", f"{path} was not written: {_line(error)}", "The batch is tried again.")
    return RefusedError("PEN-DST-024", f"{path} refuses the batch: {_line(error)}", "Nothing of it was written.")


def _line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
