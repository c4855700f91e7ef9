"""Writes all rows of a batch to a SQL engine, or none: for routes that stop at the first refused record.

``SqlDestination.write`` finds refused rows and loads the others. Here it gets a session that ends the write at the
first refused row. One table is one transaction, so nothing of it stays. A write of several transactions (tables,
stretches of a mirror), or to an engine without transactions, is tried and rolled back first, and loaded only if every
row was accepted. A trial may refuse rows that would be accepted after those before them; the engine then tries fewer at
a time, and at last each record on top of what came before it. Columns and tables that the rows need are made either
way.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.destinations.contract import Batch, Part, Receipt, TableBook
from penstock.destinations.sql.load.table_load import Load
from penstock.destinations.sql.marks import Mark, failures_in
from penstock.destinations.sql.mirror.applier import MirrorTransaction
from penstock.destinations.sql.mirror.row_changes import Changes
from penstock.destinations.sql.mirror.stage.change_header import decode
from penstock.destinations.sql.schema.ownership import overflow_table
from penstock.destinations.sql.schema.schema_operations import Table, WidenColumn
from penstock.destinations.sql.session import Comments, Session, known_load
from penstock.errors import RefusedError, RowTooLargeError

if TYPE_CHECKING:
    from penstock.destinations.sql.destination import SqlDestination


def write_all_or_nothing(
    destination: SqlDestination[Any], batch: Batch, parts: Sequence[Part], book: TableBook
) -> Receipt:
    """Write all rows, or none and raise ``RefusedError``. What an earlier attempt loaded cannot be rolled back: then
    the receipt names the refused rows, and all others are written."""
    try:
        if not destination.capabilities.transactions or _transaction_count(destination, parts) > 1:
            trial = _attempt(destination, batch, parts, book, keep=False)
            unavailable = next((table.unavailable for table in trial.tables if table.unavailable is not None), None)
            if unavailable is not None:
                return Receipt([replace(table, rows=0, unavailable=unavailable) for table in trial.tables])
        return _attempt(destination, batch, parts, book, keep=True)
    except RefusedError:
        beyond = overflow_table(batch.route, destination.dialect.max_name)
        if _has_loaded_some(destination, batch, {beyond, *(part.table for part in parts)}):
            return destination.write(batch, parts, book)
        raise


def _transaction_count(destination: SqlDestination[Any], parts: Sequence[Part]) -> int:
    """How many transactions the parts take at least: one per table, and in a mirror one per key."""
    return len({(part.table, decode(part.header).key if destination.config.mirrors else ()) for part in parts})


def _attempt(
    destination: SqlDestination[Any], batch: Batch, parts: Sequence[Part], book: TableBook, keep: bool
) -> Receipt:
    """The receipt of a write that ends at the first refusal."""

    @contextmanager
    def session() -> Iterator[Session]:
        with destination.session() as real:
            yield _StrictSession(real, keep)

    strict = copy.copy(destination)
    strict.session = session  # type: ignore[method-assign]
    try:
        receipt = strict.write(batch, parts, book)
        for table in receipt.tables:
            if table.failures is not None and not table.repeated:
                # The table refused its rows before any was tried.
                raise _refusal(table.failures)
    except _Refusal as refusal:
        raise RefusedError("PEN-DST-024", str(refusal), "Nothing of it was written.") from refusal
    return receipt


def _has_loaded_some(destination: SqlDestination[Any], batch: Batch, tables: Iterable[str]) -> bool:
    with destination.session() as session:
        return any(known_load(session, batch, table) is not None for table in tables)


class _Refusal(Exception):
    """Passes through the loader, which would answer a ``RefusedError`` by searching for the bad rows."""


def _refusal(failures: pa.RecordBatch) -> _Refusal:
    return _Refusal(failures.column("message")[0].as_py())


class _StrictSession(Session):
    """A session that loads all rows or ends the write. Without ``keep`` it rolls them back in either case."""

    def __init__(self, session: Session, keep: bool) -> None:
        self._session = session
        self._keep = keep
        self.dialect = session.dialect

    def table(self, name: str) -> Table | None:
        return self._session.table(name)

    def is_name_taken(self, name: str) -> bool:
        return self._session.is_name_taken(name)

    def select(self, query: str) -> Sequence[Sequence[object]]:
        return self._session.select(query)

    def registered_tables(self) -> Sequence[tuple[str, str]]:
        return self._session.registered_tables()

    def register_tables(self, tables: Collection[str], route: str) -> None:
        self._session.register_tables(tables, route)

    def marked_tables(self) -> Sequence[tuple[str, str, str]]:
        return self._session.marked_tables()

    def comments(self, table: str) -> Comments:
        return self._session.comments(table)

    def has_rows(self, table: str) -> bool:
        return self._session.has_rows(table)

    def run_ddl(self, statements: Sequence[str]) -> None:
        self._session.run_ddl(statements)

    def would_lose_values(self, widening: WidenColumn) -> bool:
        return self._session.would_lose_values(widening)

    def lock_schema(self, table: str, book: TableBook) -> AbstractContextManager[None]:
        return self._session.lock_schema(table, book)

    def find_mark(self, batch: Batch, table: str) -> Mark | None:
        return self._session.find_mark(batch, table)

    def newest_marks(self) -> list[Mark]:
        return self._session.newest_marks()

    def marks(self, scope: str, route: str) -> list[Mark]:
        return self._session.marks(scope, route)

    def load(self, load: Load, mark: Callable[[], Mark] | None) -> None:
        def of_all_rows() -> Mark:
            assert mark is not None
            found = mark()
            failures = failures_in(found.failures)
            if failures is not None:
                raise _refusal(failures)
            return found

        try:
            self._session.load(load, of_all_rows if self._keep and mark is not None else None)
        except RowTooLargeError:
            raise  # the loader can narrow the row
        except RefusedError as error:
            raise _Refusal(error.what) from error
        if not self._keep and mark is not None:
            of_all_rows()

    @contextmanager
    def open_mirror(self) -> Iterator[MirrorTransaction]:
        with suppress(_RollBack), self._session.open_mirror() as mirror:
            yield _StrictMirror(mirror)
            if not self._keep:
                raise _RollBack


class _StrictMirror(MirrorTransaction):
    """A mirror that applies all changes or ends the write."""

    def __init__(self, mirror: MirrorTransaction) -> None:
        self._mirror = mirror

    @property
    def whole_rows(self) -> bool:  # type: ignore[override]
        return self._mirror.whole_rows

    def apply(self, changes: Changes, before: Callable[[], Changes] | None) -> None:
        try:
            self._mirror.apply(changes, before)
        except RefusedError as error:
            raise _Refusal(error.what) from error

    def write_mark(self, mark: Mark) -> None:
        failures = failures_in(mark.failures)
        if failures is not None:
            raise _refusal(failures)
        self._mirror.write_mark(mark)


class _RollBack(Exception):
    """Ends the transaction of a trial."""
