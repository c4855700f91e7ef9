"""A ClickHouse client as the loader uses it.

ClickHouse has no transactions. Rows are inserted in pieces; each piece is inserted as a whole and carries a token made
of the batch and the piece's rows, by which the table recognises a repeated insert. The mark comes last. So a load that
was interrupted and is tried again inserts only what is missing, as long as its table remembers (``DEDUP_WINDOW``
inserts). With a key rows are merged, and merging them again changes nothing.

Text for columns that ClickHouse must convert, and rows to be merged, go through a staging table.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock import faults
from penstock.destinations.clickhouse.dialect import ClickhouseDialect
from penstock.destinations.clickhouse.digest import digest
from penstock.destinations.clickhouse.error_translation import as_penstock_error, is_no_table
from penstock.destinations.contract import Batch, TableBook
from penstock.destinations.sql.load.row_pieces import load_pieces
from penstock.destinations.sql.load.table_load import Load
from penstock.destinations.sql.marked_session import MarkedSession
from penstock.destinations.sql.marks import KEPT_MARKS, MARKS, Mark
from penstock.destinations.sql.schema.schema_operations import Key, Table, TypedColumn
from penstock.errors import PenstockError, TransientError

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

_WAITING = "_penstock_waiting_"
_TRIAL = "_penstock_trial_"
KEPT_FOR = "1 DAY"
"""No temporary table is in use for longer than this."""
_NO_DEDUPLICATION = {"insert_deduplicate": "0"}
"""For inserts that must never be dropped as repeated: without a token, equal rows would be."""
_IN_ORDER = {"max_threads": "1", "max_insert_threads": "1"}
_MERGING = {**_NO_DEDUPLICATION, "join_use_nulls": "1", "insert_null_as_default": "1"}


class ClickhouseSession(MarkedSession):
    _mark_rows = "AS m FINAL"

    def __init__(self, client: Client, dialect: ClickhouseDialect) -> None:
        self._client = client
        self.dialect: ClickhouseDialect = dialect
        self._has_origins = False

    def server_info(self) -> tuple[str, int]:
        """The server's version, and how many tables there are."""
        ((version, tables),) = self._query(
            "SELECT version(), count() FROM system.tables WHERE database = {database:String}"
        )
        return str(version), int(str(tables))

    # Tables

    def table(self, name: str) -> Table | None:
        found = self._query(
            "SELECT engine, comment FROM system.tables WHERE database = {database:String} AND name = {name:String}",
            name=name,
        )
        if not found:
            return None
        engine, comment = found[0]
        # Columns that ClickHouse computes cannot be inserted.
        rows = self._query(
            "SELECT name, type, is_in_sorting_key FROM system.columns WHERE database = {database:String}"
            " AND table = {name:String} AND default_kind IN ('', 'DEFAULT') ORDER BY position",
            name=name,
        )
        # If two names differ only in case, the one in lower case is ours.
        ordered = sorted(rows, key=lambda row: row[0] == str(row[0]).lower())
        columns = {str(column).lower(): TypedColumn(str(column), str(kind)) for column, kind, _ in ordered}
        sorted_by = tuple(str(column).lower() for column, _, in_key in rows if in_key)
        replaces = str(engine).endswith("ReplacingMergeTree") and sorted_by
        return Table(name, columns, Key(str(comment), sorted_by) if replaces else None)

    def select(self, query: str, **values: str) -> Sequence[Sequence[object]]:
        return self._query(query, **values)

    def run_ddl(self, statements: Sequence[str]) -> None:
        for statement in statements:
            self._execute(statement, refuses=False)

    def lock_schema(self, table: str, book: TableBook) -> AbstractContextManager[object]:
        return book.lock(f"clickhouse {self.dialect.relation(table)}")

    # Loads

    def find_mark(self, batch: Batch, table: str) -> Mark | None:
        try:
            if not self._has_origins:
                self._execute(f"ALTER TABLE {self._marks} {_ADD_ORIGIN}", refuses=False)
                self._has_origins = True
            found = self._query(
                f"SELECT loaded, failures, origin FROM {self._marks} WHERE scope = {{scope:String}}"
                " AND route = {route:String} AND table_name = {name:String} AND batch = {batch:Int64} LIMIT 1",
                scope=batch.scope,
                route=batch.route,
                name=table,
                batch=batch.number,
            )
        except _NoTable:
            return None
        if not found:
            return None
        return Mark(replace(batch, origin=str(found[0][2])), table, int(str(found[0][0])), str(found[0][1]))

    def _load(self, load: Load) -> None:
        name = load.table.name
        with self._trial(name) if load.batch is None else nullcontext(name) as into:
            self._insert(load, into)
        if (mark := load.mark()) is not None:
            faults.reach("destination.writing")
            self._write_mark(mark)

    def _insert(self, load: Load, into: str) -> None:
        undecided = any(self.dialect.target(load.table.columns[name].type).type is None for name in load.rows.columns())
        if load.merge or undecided:
            self._insert_through_staging(load, into)
            return
        for number, piece in enumerate(load_pieces(load, self.dialect)):
            self._insert_rows(into, piece, _token(load.batch, into, number, digest(piece)))
            faults.reach("destination.piece")

    def _insert_through_staging(self, load: Load, into: str) -> None:
        columns = load.rows.columns()
        waiting = _WAITING + uuid.uuid4().hex
        key = [load.table.columns[name].name for name in (load.merge.key if load.merge else ())]
        with self._temporary_table(
            waiting, self.dialect.create_staging(waiting, load.staged_columns(self.dialect), key)
        ):
            seen = hashlib.blake2b(digest_size=16)
            for piece in load_pieces(load, self.dialect):
                seen.update(digest(piece))
                self._insert_rows(waiting, piece, _NO_DEDUPLICATION)
            statement = self.dialect.insert_statement(load.table, waiting, columns, load.merge, into)
            settings = _MERGING if load.merge else {**_token(load.batch, into, 0, seen.digest()), **_IN_ORDER}
            self._execute(statement, settings)

    @contextmanager
    def _trial(self, table: str) -> Iterator[str]:
        """A copy of a table's definition with its constraints, to try an insert."""
        trial = _TRIAL + uuid.uuid4().hex
        like = f"{self.dialect.relation(trial)} AS {self.dialect.relation(table)}"
        with self._temporary_table(trial, f"CREATE TABLE {like} ENGINE = MergeTree ORDER BY tuple()"):
            yield trial

    @contextmanager
    def _temporary_table(self, name: str, create: str) -> Iterator[None]:
        self._drop_leftovers()
        self._execute(create, refuses=False)
        try:
            yield
        finally:
            # If it cannot be dropped now, a later load drops it.
            with suppress(PenstockError):
                self._execute(f"DROP TABLE {self.dialect.relation(name)}")

    def _drop_leftovers(self) -> None:
        """Drop temporary tables that killed loads left behind."""
        left = self._query(
            "SELECT name FROM system.tables WHERE database = {database:String} AND (startsWith(name, {waiting:String})"
            f" OR startsWith(name, {{trial:String}})) AND metadata_modification_time < now() - INTERVAL {KEPT_FOR}",
            waiting=_WAITING,
            trial=_TRIAL,
        )
        for (name,) in left:
            self._execute(f"DROP TABLE IF EXISTS {self.dialect.relation(str(name))}", refuses=False)

    def _write_mark(self, mark: Mark) -> None:
        """A mark replaces the one that is too old to be needed."""
        batch = mark.batch
        self._execute(_CREATE_MARKS.format(marks=self._marks), refuses=False)
        row = {
            "scope": batch.scope,
            "route": batch.route,
            "table_name": mark.table,
            "slot": batch.number % KEPT_MARKS,
            "batch": batch.number,
            "loaded": mark.rows,
            "failures": mark.failures,
            "origin": batch.origin,
        }
        self._insert_rows(MARKS, pa.Table.from_pylist([row]), _NO_DEDUPLICATION, refuses=False)

    # The client

    def _query(self, query: str, **parameters: str | int) -> Sequence[Sequence[object]]:
        with translate_errors(refuses=False):
            rows: Sequence[Sequence[object]] = self._client.query(
                query, parameters={"database": self.dialect.database, **parameters}
            ).result_rows
            return rows

    def _execute(self, statement: str, settings: Mapping[str, str] | None = None, refuses: bool = True) -> None:
        with translate_errors(refuses):
            self._client.command(statement, settings=dict(settings or {}))

    def _insert_rows(self, table: str, rows: pa.Table, settings: Mapping[str, str], refuses: bool = True) -> None:
        with translate_errors(refuses):
            self._client.insert_arrow(self.dialect.relation(table), rows, settings=dict(settings))


@contextmanager
def translate_errors(refuses: bool) -> Iterator[None]:
    from clickhouse_connect.driver.exceptions import ClickHouseError

    try:
        yield
    except ClickHouseError as error:
        if is_no_table(error):
            raise _NoTable(*as_penstock_error(error, refuses).args) from error
        raise as_penstock_error(error, refuses) from error


class _NoTable(TransientError):
    """A table does not exist (any more)."""


_CREATE_MARKS = (
    "CREATE TABLE IF NOT EXISTS {marks} (scope String, route String, table_name String, slot UInt16, batch Int64,"
    " loaded Int64, failures String, committed_at DateTime64(6, 'UTC') DEFAULT now64(6), origin String)"
    " ENGINE = ReplacingMergeTree(batch) ORDER BY (scope, route, table_name, slot)"
)

_ADD_ORIGIN = "ADD COLUMN IF NOT EXISTS origin String"


def _token(batch: Batch | None, table: str, number: int, content: bytes) -> dict[str, str]:
    """The token covers the rows, not only their place: if another attempt cuts the batch differently, no other rows are
    mistaken for those that are there."""
    if batch is None:
        return _NO_DEDUPLICATION
    name = json.dumps([batch.scope, batch.route, batch.number, batch.origin, table, number, content.hex()])
    return {"insert_deduplication_token": hashlib.blake2b(name.encode(), digest_size=16).hexdigest()}
