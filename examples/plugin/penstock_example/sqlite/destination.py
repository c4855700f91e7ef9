"""Events as JSON in a table of a SQLite file, each batch with its mark in one transaction: exactly once.

The mark (``_batches``) says which batch the rows came from and what it was made of. A batch that comes again finds its
mark and changes nothing; other records under the same number contradict it, and a person is asked.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from penstock import faults
from penstock.destinations.contract import (
    NULL_TABLE_BOOK,
    Batch,
    Capabilities,
    Destination,
    LoadedTable,
    Part,
    Receipt,
    Stager,
    TableBook,
    TableReceipt,
)
from penstock.errors import ContradictionError, TransientError
from penstock.outcome import FAILURE_SCHEMA, PLACE_COLUMNS, Outcome
from penstock_example.sqlite.config import SqliteConfig

MARKS = """CREATE TABLE IF NOT EXISTS _batches (
    scope TEXT, route TEXT, number INTEGER, origin TEXT, events INTEGER, PRIMARY KEY (scope, route, number))"""


class SqliteDestination(Destination[SqliteConfig]):
    capabilities = Capabilities(transactions=True)

    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        return JsonStager(directory, self.config.table)

    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
        if not parts:
            return Receipt()
        rows = sum(part.rows for part in parts)
        with self._transaction() as database:
            database.execute(MARKS)
            database.execute(f"CREATE TABLE IF NOT EXISTS {self.config.table} (event TEXT NOT NULL)")
            known = self._known(database, batch)
            if known is not None:
                return Receipt([TableReceipt(self.config.table, known, repeated=True)])
            for part in sorted(parts, key=lambda part: (part.partition, part.first_offset)):
                with pa.ipc.open_stream(part.path) as staged:
                    for piece in staged:
                        values = [(event,) for event in piece.column(0).to_pylist()]
                        database.executemany(f"INSERT INTO {self.config.table} VALUES (?)", values)
                faults.reach("destination.writing")
            mark = (batch.scope, batch.route, batch.number, batch.origin, rows)
            database.execute("INSERT INTO _batches VALUES (?, ?, ?, ?, ?)", mark)
        faults.reach("destination.committed")
        return Receipt([TableReceipt(self.config.table, rows)])

    def newest_loads(self) -> Sequence[LoadedTable]:
        return self._loads("GROUP BY scope, route HAVING number = max(number)")

    def loads(self, scope: str, route: str) -> Sequence[LoadedTable]:
        return self._loads("WHERE scope = ? AND route = ? ORDER BY number", scope, route)

    def check(self) -> str:
        with self._transaction() as database:
            (version,) = database.execute("SELECT sqlite_version()").fetchone()
        return f"{self.config.path} can be written, SQLite {version}"

    def _known(self, database: sqlite3.Connection, batch: Batch) -> int | None:
        """The rows of this batch, if it is there."""
        found = database.execute(
            "SELECT origin, events FROM _batches WHERE scope = ? AND route = ? AND number = ?",
            (batch.scope, batch.route, batch.number),
        ).fetchone()
        if found is None:
            return None
        origin, rows = found
        if origin != batch.origin:
            raise ContradictionError(
                "EX-SQL-002",
                f"{self.config.path} has a batch {batch.number} of route '{batch.route}' that was made of other"
                " records: an older copy of the ledger was put back. Nothing was written.",
                f"Continue after what the destination has: penstock offset adopt {batch.route}",
            )
        return int(rows)

    def _loads(self, which: str, *values: str) -> Sequence[LoadedTable]:
        if not self.config.path.exists():
            return []
        with self._transaction() as database:
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = '_batches'").fetchone():
                return []
            found = database.execute(f"SELECT scope, route, number, origin, events FROM _batches {which}", values)
            return [
                LoadedTable(Batch(scope, route, number, {}, origin), self.config.table, rows)
                for scope, route, number, origin, rows in found
            ]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A connection for one transaction. What another try can fix is said to be so: the engine waits and tries."""
        try:
            self.config.path.parent.mkdir(parents=True, exist_ok=True)
            database = sqlite3.connect(self.config.path, timeout=1, isolation_level=None)
            try:
                database.execute("BEGIN IMMEDIATE")
                yield database
                database.execute("COMMIT")
            finally:
                database.close()  # rolls back what was not committed
        except sqlite3.OperationalError as error:
            raise TransientError(
                "EX-SQL-001", f"{self.config.path} cannot be used: {error}.", "It is tried again."
            ) from error


class JsonStager(Stager):
    """Puts the events of one stretch into one file, piece by piece: nothing is held back."""

    def __init__(self, directory: Path, table: str) -> None:
        self._path = directory / uuid.uuid4().hex
        self._table = table
        self._schema = pa.schema([("event", pa.string())])
        self._file: pa.RecordBatchStreamWriter | None = None
        self._first = (-1, -1)
        self._rows = 0

    def add(self, batch: pa.RecordBatch, read: pa.RecordBatch | None = None) -> Outcome:
        problems = [_problem(data) for data in batch.column("data").to_pylist()]
        kept = batch.filter(pa.array([problem is None for problem in problems], pa.bool_()))
        if kept.num_rows:
            if self._file is None:
                self._file = pa.ipc.new_stream(str(self._path), self._schema)
                self._first = kept.column("partition")[0].as_py(), kept.column("offset")[0].as_py()
            self._file.write(pa.RecordBatch.from_arrays([kept.column("data").cast(pa.string())], schema=self._schema))
            self._rows += kept.num_rows
        failures = [
            {**place, "code": "not_json", "message": problem}
            for place, problem in zip(batch.select(PLACE_COLUMNS).to_pylist(), problems, strict=True)
            if problem is not None
        ]
        return Outcome(kept, failures=pa.RecordBatch.from_pylist(failures, schema=FAILURE_SCHEMA))

    def finish(self) -> list[Part]:
        if self._file is None:
            return []
        self._file.close()
        return [Part(self._table, str(self._path), self._rows, *self._first)]


def _problem(data: bytes | None) -> str | None:
    """Why this is no event."""
    try:
        value = json.loads((data or b"").decode())
    except ValueError as error:
        return str(error)
    return None if isinstance(value, dict) else "not a JSON object"
