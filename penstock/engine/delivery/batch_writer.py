"""Writes one batch to its destination until every table has its rows, and waits while the destination is unavailable.

A table that stays unavailable while others take their rows does not hold up the batch: its part is put off, and so is
that of every later batch, until it has got what it waits for (``penstock.engine.retry_lane.retrier``). If it is the
only table, or all others are unavailable too, no table could go on, and the batch waits. A table of which so many rows
are refused that they take long to find is put off, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event

from penstock.backoff import Backoff, Patience
from penstock.destinations.contract import AnyDestination, Batch, Part, Receipt, TableReceipt
from penstock.engine import events
from penstock.engine.delivery.schema_drift import DriftDetector
from penstock.engine.delivery.task_report import rows_by_table
from penstock.engine.ledger import Ledger, RouteState, WaitingTable
from penstock.engine.ledger.table_mappings import RouteBook
from penstock.errors import RefusedError, RouteError, TakesLong, TransientError

TRIES = 2
"""How often a table is tried before its part is put off: one failure may be that of the whole connection."""
SECONDS_PER_TABLE = 20.0
"""How long the rows of one table may be sorted out while others wait for it."""
MAX_WAITING_BATCHES = 10_000
"""For the parts of how many batches a table may wait; then its route waits for it."""


class Stopped(Exception):
    """A stop was requested before the batch was delivered. The batch is still in the log; this is not an error."""


class AcksChanged(Exception):
    """An operator acknowledged records of the batch while it waited: it must be tried again without them."""


class OutOfPatience(Stopped):
    """The destination was unavailable for longer than the run may wait. The batch is still in the log."""


@dataclass(frozen=True)
class BatchWriter:
    """Writes the batches of one route. ``all_or_nothing``: all rows of a batch or none."""

    destination: AnyDestination
    ledger: Ledger
    stopping: Event
    all_or_nothing: bool = False
    watch: DriftDetector = field(default_factory=DriftDetector)
    patience: Patience = field(default_factory=Patience)
    check_target: Callable[[], None] = lambda: None
    """Called before each write; it may raise what the destination may."""
    may_defer: bool = True
    """Whether a table that stays unavailable may get its part later, staged anew from its range of the log."""
    passes_over: bool = False
    """Whether the batch passes over records that a table may have got by an earlier attempt."""
    acks_changed: Callable[[], bool] = lambda: False
    """Whether the records to pass over have changed."""

    def write(self, batch: Batch, parts: Sequence[Part], again: bool) -> list[TableReceipt]:
        """What is written stays written: only the other tables are tried again, by this call or after a crash
        (``again``). The receipt of a table whose part is put off says why it is ``unavailable``. Raises
        ``RefusedError`` if the destination refuses the batch, ``Stopped``, ``OutOfPatience`` and ``AcksChanged``."""
        staged = rows_by_table(parts)
        done = {table.table: table for table in self.ledger.loaded_tables(batch)}
        backoff = Backoff()
        waiting = self._wait_for_tables(batch, staged, backoff)
        names = self.ledger.waiting_route_names(batch.route) if waiting else ()
        batch = replace(batch, waiting={table: found.first for table, found in waiting.items()}, waiting_as=names)
        done |= {table: _behind_receipt(table, waiting[table]) for table in staged if table in waiting}
        tries: Counter[str] = Counter()
        first = True
        # A batch without rows is written too, once. One whose tables are all done is not: to the destination it
        # would look as if the batch had become empty.
        while (missing := _missing(parts, done.values())) or (first and not staged):
            try:
                # Once a table is written it is too late for all or nothing.
                given = (
                    replace(batch, seconds_per_table=SECONDS_PER_TABLE)
                    if self._may_hurry(batch, staged, tries)
                    else batch
                )
                receipts = self._try_write(given, missing, again or not first, self.all_or_nothing and not done)
                problem = next((table.unavailable for table in receipts if table.unavailable is not None), None)
            except TransientError as error:
                receipts, problem = (), error
            except RefusedError as error:
                if any(table.unavailable is None for table in done.values()):
                    raise _refused_too_late(batch, error) from error
                raise
            first = False
            for table in receipts:
                if table.unavailable is None:
                    if not (self.passes_over and (table.repeated or table.resumed)):
                        _check_accounted(batch, table, sum(staged[name] for name in table.staged_as))
                    done[table.table] = table
                    if _says_only_rows(table):
                        self.ledger.note_table_loaded(batch, table)
            unavailable = [table for table in receipts if table.unavailable is not None]
            tries.update(table.table for table in unavailable)
            if unavailable and self._can_go_on(batch.route, {table.table for table in unavailable}, done):
                for table in unavailable:
                    enough = tries[table.table] >= TRIES or isinstance(table.unavailable, TakesLong)
                    if enough and not table.meant_for:
                        events.table_deferred(batch.route, batch.number, table.table, str(table.unavailable))
                        done[table.table] = table
                if not _missing(parts, done.values()):
                    break
            if isinstance(problem, TakesLong):
                continue  # It gets the time that it needs.
            if problem is not None:
                self._wait(batch, backoff, problem)
            elif _missing(parts, done.values()):
                raise unaccounted(batch, sum(staged.values()), Receipt(list(done.values())).rows)
        self.patience.reset()
        if backoff.waited:
            self.ledger.set_state(batch.route, RouteState.RUNNING)
        return list(done.values())

    def _wait_for_tables(self, batch: Batch, tables: Collection[str], backoff: Backoff) -> dict[str, WaitingTable]:
        """The tables that wait for their part of earlier batches: they get nothing of this one before that. Blocks
        while one of this batch is too far behind."""
        while True:
            waiting = self.ledger.waiting_tables(batch.route)
            # All or nothing means that no table may be left out.
            most = 1 if self.all_or_nothing else MAX_WAITING_BATCHES
            first = next((table for table in tables if table in waiting and waiting[table].batches >= most), None)
            if first is None:
                return waiting
            table = waiting[first]
            self._wait(batch, backoff, TableBehind(first, f"waits for {table.batches} batches first: {table.reason}"))

    def _may_hurry(self, batch: Batch, staged: Collection[str], tries: Mapping[str, int]) -> bool:
        """Whether a table that takes long could get its part later, while others go on."""
        if tries or self.all_or_nothing or not self.may_defer:
            return False
        return len({*staged, *self.ledger.table_counts(batch.route)}) > 1

    def _can_go_on(self, route: str, unavailable: Collection[str], done: Mapping[str, TableReceipt]) -> bool:
        """Whether a table that takes rows, as far as is known, would be held up by unavailable ones."""
        if self.all_or_nothing or not self.may_defer:
            return False
        takes_rows = {name for name, table in done.items() if table.unavailable is None}
        # Asked anew: a table may have caught up while this batch waits.
        unavailable = {*unavailable, *self.ledger.waiting_tables(route)}
        return any(table not in unavailable for table in (*takes_rows, *self.ledger.table_counts(route)))

    def _try_write(self, batch: Batch, parts: Sequence[Part], again: bool, atomic: bool) -> Sequence[TableReceipt]:
        book = RouteBook(self.ledger, batch.route)
        ended = False
        try:
            self.check_target()
            self.watch.before_try(self.destination, {part.table for part in parts}, book, batch.number, again)
            if atomic:
                receipts = self.destination.write_all_or_nothing(batch, parts, book).tables
            else:
                receipts = self.destination.write(batch, parts, book).tables
            ended = all(table.unavailable is None for table in receipts)
            return receipts
        finally:
            self.watch.after_try(book, ended)

    def _wait(self, batch: Batch, backoff: Backoff, problem: TransientError) -> None:
        try:
            wait_for_destination(self.ledger, batch.route, self.patience, self.stopping, backoff, problem)
        except OutOfPatience:
            raise
        except Stopped:
            events.batch_left_for_next_start(batch.route, batch.number)
            raise
        if self.acks_changed():
            raise AcksChanged


def wait_for_destination(
    ledger: Ledger, route: str, patience: Patience, stopping: Event, backoff: Backoff, problem: TransientError
) -> None:
    """Note why a route waits, and wait until it should try again. Raises ``Stopped`` and ``OutOfPatience``."""
    ledger.set_state(route, RouteState.RETRYING, str(problem))
    if patience.is_over():
        raise OutOfPatience(str(problem)) from problem
    wait = patience.at_most(backoff.next())
    events.destination_unavailable(route, str(problem), wait)
    if stopping.wait(wait):
        raise Stopped from problem


class TableBehind(TransientError):
    """A table must get its part of earlier batches first."""

    def __init__(self, table: str, what: str) -> None:
        fix = "Retried automatically. Remove the cause, for example a lock or a missing permission on the table."
        super().__init__("PEN-RTE-021", f"table '{table}' {what}", fix)


def _behind_receipt(table: str, waiting: WaitingTable) -> TableReceipt:
    return TableReceipt(
        table, 0, unavailable=TableBehind(table, f"waits for batch {waiting.first} first: {waiting.reason}")
    )


def _missing(parts: Sequence[Part], done: Iterable[TableReceipt]) -> list[Part]:
    settled = {name for table in done for name in table.staged_as}
    return [part for part in parts if part.table not in settled]


def _says_only_rows(table: TableReceipt) -> bool:
    """Whether the rows are all there is to know. After a crash the ledger knows no more of a table that is noted."""
    more = table.waiting or table.skipped or table.superseded or table.wakes or table.tallies
    return table.failures is None and not more


def _check_accounted(batch: Batch, table: TableReceipt, staged: int) -> None:
    if table.accounted != staged:
        raise unaccounted(batch, staged, table.accounted)


def unaccounted(batch: Batch, staged: int, accounted: int) -> RouteError:
    """What to raise for a destination that does not say what became of every row."""
    return RouteError(
        "PEN-RTE-003",
        f"route '{batch.route}' staged {staged} rows and its destination accounts for {accounted}.",
        "The batch is not committed and is tried again. This is a defect of the destination; please report it.",
    )


def _refused_too_late(batch: Batch, error: RefusedError) -> RouteError:
    return RouteError(
        "PEN-RTE-004",
        f"batch {batch.number} of route '{batch.route}' was refused as a whole after tables of it were written:"
        f" {error.what}",
        "The batch is not committed and is tried again. This is a defect of the destination, which must name the rows;"
        " please report it.",
    )
