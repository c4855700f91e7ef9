"""Writing all rows of a batch to a SQL engine, or none: for routes that stop at the first record that is refused.

``SqlDestination.write`` finds refused rows and loads the others. Here it is given a session that says no for good when
the first row is refused. One table is one transaction, so nothing of it stays. What takes several (tables, stretches of
a mirror), or an engine without transactions, is tried first and taken back: it is loaded only when every row was taken.
A trial may refuse rows that would be taken behind those before them; the engine then tries fewer at a time, and at last
each record on top of what came before it. Columns and tables that the rows need are made in either case.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.destinations.contract import Batch, Part, Receipt, TableBook
from penstock.destinations.sql.load.loader import from_text
from penstock.destinations.sql.mirror.applier import Mirror
from penstock.destinations.sql.mirror.row_changes import Changes
from penstock.destinations.sql.mirror.stage.change_header import decode
from penstock.destinations.sql.schema.ownership import overflow_table
from penstock.destinations.sql.schema.table_changes import Table, WidenColumn
from penstock.destinations.sql.session import Comments, Load, Mark, Session, known_load
from penstock.errors import RefusedError, RowTooLargeError

if TYPE_CHECKING:
    from penstock.destinations.sql.destination import SqlDestination


def write_whole(destination: SqlDestination[Any], batch: Batch, parts: Sequence[Part], book: TableBook) -> Receipt:
    """All rows, or ``RefusedError`` and none. What an earlier attempt has loaded cannot be taken back: then the rows
    that are refused are named in the receipt, and all others are written."""
    try:
        if not destination.capabilities.transactions or _transactions(destination, parts) > 1:
            trial = _attempt(destination, batch, parts, book, keep=False)
            away = next((table.away for table in trial.tables if table.away is not None), None)
            if away is not None:
                return Receipt([replace(table, rows=0, away=away) for table in trial.tables])
        return _attempt(destination, batch, parts, book, keep=True)
    except RefusedError:
        beyond = overflow_table(batch.route, destination.dialect.max_name)
        if _has_some(destination, batch, {beyond, *(part.table for part in parts)}):
            return destination.write(batch, parts, book)
        raise


def _transactions(destination: SqlDestination[Any], parts: Sequence[Part]) -> int:
    """In how many transactions the parts are written at least: one for each table, and in a mirror for each key."""
    return len({(part.table, decode(part.header).key if destination.config.mirrors else ()) for part in parts})


def _attempt(
    destination: SqlDestination[Any], batch: Batch, parts: Sequence[Part], book: TableBook, keep: bool
) -> Receipt:
    """The receipt of a write that ends at the first refusal."""

    @contextmanager
    def session() -> Iterator[Session]:
        with destination.session() as real:
            yield _Unforgiving(real, keep)

    strict = copy.copy(destination)
    strict.session = session  # type: ignore[method-assign]
    try:
        receipt = strict.write(batch, parts, book)
        for table in receipt.tables:
            if table.failures is not None and not table.repeated:
                # It took none of its rows, without so much as a try.
                raise _refusal(table.failures)
    except _Refusal as refusal:
        raise RefusedError("PEN-DST-024", str(refusal), "Nothing of it was written.") from refusal
    return receipt


def _has_some(destination: SqlDestination[Any], batch: Batch, tables: Iterable[str]) -> bool:
    with destination.session() as session:
        return any(known_load(session, batch, table) is not None for table in tables)


class _Refusal(Exception):
    """Passes through a loader that would answer a ``RefusedError`` with a search for the bad rows."""


def _refusal(failures: pa.RecordBatch) -> _Refusal:
    return _Refusal(failures.column("message")[0].as_py())


class _Unforgiving(Session):
    """A session that takes all rows of a load or ends the write. Without ``keep`` it takes them back, too."""

    def __init__(self, session: Session, keep: bool) -> None:
        self._session = session
        self._keep = keep
        self.dialect = session.dialect

    def table(self, name: str) -> Table | None:
        return self._session.table(name)

    def exists(self, name: str) -> bool:
        return self._session.exists(name)

    def select(self, query: str) -> Sequence[Sequence[object]]:
        return self._session.select(query)

    def registered(self) -> Sequence[tuple[str, str]]:
        return self._session.registered()

    def register(self, tables: Collection[str], route: str) -> None:
        self._session.register(tables, route)

    def marked(self) -> Sequence[tuple[str, str, str]]:
        return self._session.marked()

    def comments(self, table: str) -> Comments:
        return self._session.comments(table)

    def has_rows(self, table: str) -> bool:
        return self._session.has_rows(table)

    def change(self, statements: Sequence[str]) -> None:
        self._session.change(statements)

    def loses(self, widening: WidenColumn) -> bool:
        return self._session.loses(widening)

    def patching(self, table: str, book: TableBook) -> AbstractContextManager[None]:
        return self._session.patching(table, book)

    def mark(self, batch: Batch, table: str) -> Mark | None:
        return self._session.mark(batch, table)

    def newest_marks(self) -> list[Mark]:
        return self._session.newest_marks()

    def marks(self, scope: str, route: str) -> list[Mark]:
        return self._session.marks(scope, route)

    def load(self, load: Load, mark: Callable[[], Mark] | None) -> None:
        def of_all_rows() -> Mark:
            assert mark is not None
            found = mark()
            failures = from_text(found.failures)
            if failures is not None:
                raise _refusal(failures)
            return found

        try:
            self._session.load(load, of_all_rows if self._keep and mark is not None else None)
        except RowTooLargeError:
            raise  # the loader has an answer to that
        except RefusedError as error:
            raise _Refusal(error.what) from error
        if not self._keep and mark is not None:
            of_all_rows()

    @contextmanager
    def mirroring(self) -> Iterator[Mirror]:
        with suppress(_TakenBack), self._session.mirroring() as mirror:
            yield _UnforgivingMirror(mirror)
            if not self._keep:
                raise _TakenBack


class _UnforgivingMirror(Mirror):
    """A mirror that takes all changes or ends the write."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror

    @property
    def whole_rows(self) -> bool:  # type: ignore[override]
        return self._mirror.whole_rows

    def apply(self, changes: Changes, before: Callable[[], Changes] | None) -> None:
        try:
            self._mirror.apply(changes, before)
        except RefusedError as error:
            raise _Refusal(error.what) from error

    def note(self, mark: Mark) -> None:
        failures = from_text(mark.failures)
        if failures is not None:
            raise _refusal(failures)
        self._mirror.note(mark)


class _TakenBack(Exception):
    """Ends the transaction of a trial."""
