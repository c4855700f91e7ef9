"""One batch to its destination: written until every table has its rows, waiting while the destination is away.

A table that stays away while others take their rows does not hold the batch: its part is put off, and so is that of
every later batch, until it has got what it waits for (``penstock.engine.retry_lane.retrier``). Where it is the only
table, or all others are away too, there is nobody to go on for, and the batch waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event

from penstock.backoff import Backoff, Patience
from penstock.destinations.contract import AnyDestination, Batch, Part, Receipt, TableReceipt
from penstock.engine import events
from penstock.engine.delivery.schema_drift import TableWatch
from penstock.engine.delivery.task_report import rows_by_table
from penstock.engine.ledger import Ledger, RouteState, WaitingTable
from penstock.engine.ledger.table_book import RouteBook
from penstock.errors import RefusedError, RouteError, TransientError

TRIES = 2
"""How often a table is tried before its part is put off. One failure may be the end of the whole connection."""
MOST_BATCHES = 10_000
"""Of how many batches a table may wait for its part; then its route waits for it."""


class Stopped(Exception):
    """A stop was asked for before the batch was delivered. It is still in the log; this is no error."""


class Reconsidered(Exception):
    """An operator has declared records of the batch done while it waited: it is to be tried without them."""


class OutOfPatience(Stopped):
    """The destination has been away for longer than the run is to wait. The batch is still in the log."""


@dataclass(frozen=True)
class BatchWriter:
    """Writes the batches of one route. ``whole``: all rows of a batch or none."""

    destination: AnyDestination
    ledger: Ledger
    stopping: Event
    whole: bool = False
    watch: TableWatch = field(default_factory=TableWatch)
    patience: Patience = field(default_factory=Patience)
    check: Callable[[], None] = lambda: None
    """Called before the destination is written to; it may raise what the destination may."""
    passes_over: bool = False
    """Whether records of the batch are passed over that a table may have got by an earlier attempt."""
    reconsider: Callable[[], bool] = lambda: False
    """Whether that has changed."""

    def write(self, batch: Batch, parts: Sequence[Part], again: bool) -> list[TableReceipt]:
        """What is written stays written: only the other tables are tried again, by this call or after a crash
        (``again``). The receipt of a table whose part is put off says why it is ``away``. Raises ``RefusedError`` if
        the destination takes nothing of the batch, ``Stopped`` and ``OutOfPatience``."""
        staged = rows_by_table(parts)
        done = {table.table: table for table in self.ledger.tables_loaded(batch)}
        backoff = Backoff()
        waiting = self._waiting(batch, staged, backoff)
        names = self.ledger.waiting_as(batch.route) if waiting else ()
        batch = replace(batch, waiting={table: found.first for table, found in waiting.items()}, waiting_as=names)
        done |= {table: _put_off(table, waiting[table]) for table in staged if table in waiting}
        tries: Counter[str] = Counter()
        first = True
        # A batch without rows is written too, once. One whose tables are all noted is not: to a destination it would
        # look as if the batch had become empty.
        while (missing := _missing(parts, done.values())) or (first and not staged):
            try:
                # Beside tables that are written already it is too late for all or nothing.
                receipts = self._tried(batch, missing, again or not first, self.whole and not done)
                problem = next((table.away for table in receipts if table.away is not None), None)
            except TransientError as error:
                receipts, problem = (), error
            except RefusedError as error:
                if any(table.away is None for table in done.values()):
                    raise _refused_too_late(batch, error) from error
                raise
            first = False
            for table in receipts:
                if table.away is None:
                    if not (self.passes_over and (table.repeated or table.resumed)):
                        _check(batch, table, sum(staged[name] for name in table.staged_as))
                    done[table.table] = table
                    if table.failures is None:
                        self.ledger.table_loaded(batch, table)
            away = [table for table in receipts if table.away is not None]
            tries.update(table.table for table in away)
            if away and self._can_go_on(batch.route, {table.table for table in away}, done):
                for table in away:
                    if tries[table.table] >= TRIES and not table.meant_for:
                        events.table_put_off(batch.route, batch.number, table.table, str(table.away))
                        done[table.table] = table
                if not _missing(parts, done.values()):
                    break
            if problem is not None:
                self._wait(batch, backoff, problem)
            elif _missing(parts, done.values()):
                raise _unaccounted(batch, sum(staged.values()), Receipt(list(done.values())).rows)
        self.patience.reset()
        if backoff.waited:
            self.ledger.note(batch.route, RouteState.RUNNING)
        return list(done.values())

    def _waiting(self, batch: Batch, tables: Collection[str], backoff: Backoff) -> dict[str, WaitingTable]:
        """The route's tables that are without their part of earlier batches: they get none of this one before that."""
        while True:
            waiting = self.ledger.waiting_tables(batch.route)
            # What is to be written whole is not to be written without some of its tables.
            most = 1 if self.whole else MOST_BATCHES
            first = next((table for table in tables if table in waiting and waiting[table].batches >= most), None)
            if first is None:
                return waiting
            told = waiting[first]
            self._wait(batch, backoff, RouteAwaits(first, f"waits for {told.batches} batches first: {told.reason}"))

    def _can_go_on(self, route: str, away: Collection[str], done: Mapping[str, TableReceipt]) -> bool:
        """Whether there is a table that others must not hold up: one that takes rows, as far as anybody knows."""
        if self.whole:
            return False
        takes_rows = {name for name, table in done.items() if table.away is None}
        # Asked anew: one that waited may have got what it waited for while this batch waits.
        away = {*away, *self.ledger.waiting_tables(route)}
        return any(table not in away for table in (*takes_rows, *self.ledger.delivered(route)))

    def _tried(self, batch: Batch, parts: Sequence[Part], again: bool, whole: bool) -> Sequence[TableReceipt]:
        book = RouteBook(self.ledger, batch.route)
        ended = False
        try:
            self.check()
            self.watch.before_try(self.destination, {part.table for part in parts}, book, batch.number, again)
            if whole:
                receipts = self.destination.write_whole(batch, parts, book).tables
            else:
                receipts = self.destination.write(batch, parts, book).tables
            ended = all(table.away is None for table in receipts)
            return receipts
        finally:
            self.watch.after_try(book, ended)

    def _wait(self, batch: Batch, backoff: Backoff, problem: TransientError) -> None:
        self.ledger.note(batch.route, RouteState.RETRYING, str(problem))
        if self.patience.is_over():
            raise OutOfPatience(str(problem)) from problem
        wait = self.patience.at_most(backoff.next())
        events.destination_unavailable(batch.route, str(problem), wait)
        if self.stopping.wait(wait):
            events.batch_put_off(batch.route, batch.number)
            raise Stopped from problem
        if self.reconsider():
            raise Reconsidered


class RouteAwaits(TransientError):
    """A table that must get its part of earlier batches first."""

    def __init__(self, table: str, what: str) -> None:
        super().__init__("PEN-RTE-021", f"table '{table}' {what}", "It is tried again; until then, look at the table.")


def _put_off(table: str, waiting: WaitingTable) -> TableReceipt:
    return TableReceipt(table, 0, away=RouteAwaits(table, f"waits for batch {waiting.first} first: {waiting.reason}"))


def _missing(parts: Sequence[Part], done: Iterable[TableReceipt]) -> list[Part]:
    settled = {name for table in done for name in table.staged_as}
    return [part for part in parts if part.table not in settled]


def _check(batch: Batch, table: TableReceipt, staged: int) -> None:
    accounted = table.rows + (table.failures.num_rows if table.failures is not None else 0)
    if accounted != staged:
        raise _unaccounted(batch, staged, accounted)


def _unaccounted(batch: Batch, staged: int, accounted: int) -> RouteError:
    return RouteError(
        "PEN-RTE-003",
        f"route '{batch.route}' staged {staged} rows and its destination accounts for {accounted}.",
        "This is a defect of the destination; the batch is not committed.",
    )


def _refused_too_late(batch: Batch, error: RefusedError) -> RouteError:
    return RouteError(
        "PEN-RTE-004",
        f"batch {batch.number} of route '{batch.route}' was refused as a whole after tables of it were written:"
        f" {error.what}",
        "This is a defect of the destination, which must name the rows; the batch is not committed.",
    )
