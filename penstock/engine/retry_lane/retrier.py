"""The retry lane of a route: tables that were away get what they wait for, beside the batches that go on.

A table gets the parts of its batches in order, each under its batch's own number, so that a destination knows one that
it has. Their rows are made anew from the log, which is kept for them, in a folder of the lane's own. It waits for no
batch: one that is under way may be waiting for what the lane is to do.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock import faults
from penstock.backoff import Backoff
from penstock.destinations.contract import Part, Receipt, TableReceipt
from penstock.engine import events
from penstock.engine.delivery.batch_pieces import Ranges, between, joined
from penstock.engine.delivery.batch_protocol import Delivery
from penstock.engine.delivery.log_gaps import gaps_of_waiting, refused
from penstock.engine.delivery.passed_records import Stretches
from penstock.engine.delivery.refusals import originals
from penstock.engine.delivery.schema_drift import TableWatch
from penstock.engine.delivery.task_report import BatchReport
from penstock.engine.history.batch_origin import Origin
from penstock.engine.ledger import ACKNOWLEDGED, CHANGED, Settlement, WaitingPart
from penstock.engine.ledger.table_book import RouteBook
from penstock.engine.lost_workers.lost_worker import WorkerLost
from penstock.engine.retry_lane.shortfall import failing_now, refuse_to_drop
from penstock.errors import ContradictionError, PenstockError, RefusedError, RouteError, TransientError
from penstock.log.record_order import RangeOrder

LOOK_EVERY = 1.0
"""Seconds between looks at whether something waits."""
PARTS_PER_TURN = 20
"""How many parts a table gets before the next one has its turn."""

Carry = Callable[[Ranges, Stretches], BatchReport]
"""Stages ranges of the log anew, without some stretches of them."""


@dataclass(frozen=True)
class _Staged:
    """A part as it was made anew: its rows, and how many rows were left out because they are declared done."""

    part: WaitingPart
    parts: Sequence[Part]
    acknowledged: int

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)


@dataclass
class RetryLane:
    """Tries what waits, when it is due. Used by one thread."""

    delivery: Delivery
    carry: Carry
    directory: Path
    """Where a part lies while its table is tried."""
    rest: Callable[[], None] = lambda: None
    """Called when nothing waits any more, so that what carrying needs can be let go."""
    _watch: TableWatch = field(default_factory=TableWatch)
    _due: dict[str, float] = field(default_factory=dict)
    _backoffs: dict[str, Backoff] = field(default_factory=dict)
    _staged: dict[str, _Staged] = field(default_factory=dict)
    _shown: set[str] = field(default_factory=set)

    @property
    def _route(self) -> str:
        return self.delivery.plan.name

    def keep_trying(self, ended: threading.Event) -> None:
        """Until ``ended`` or the route is told to stop. What goes wrong is said, and tried again."""
        backoff = Backoff(first=LOOK_EVERY)
        pause = 0.0
        while not ended.wait(pause) and not self.delivery.stopping.is_set():
            pause = LOOK_EVERY
            try:
                self.try_what_is_due()
                backoff.reset()
            except Exception as error:
                # Whatever it is, what waits must not be forgotten for it.
                events.retrying_failed(self._route, f"{type(error).__name__}: {error}")
                pause = backoff.next()

    def try_what_is_due(self) -> bool:
        """Give every table that is due what it waits for, until it is away again. Returns whether some still wait."""
        waiting = self.delivery.ledger.waiting_tables(self._route)
        self._show({table: told.rows for table, told in waiting.items()})
        if waiting and not self.delivery.agreed:
            # Only who runs the route may halt it: an operator who reads that it is halted takes it to be at rest.
            self.delivery.ask_history()
        if not waiting:
            self.rest()
        problem: Exception | None = None
        for table in waiting if self.delivery.agreed else ():
            if time.monotonic() >= self._due.get(table, 0.0):
                try:
                    self._try_table(table)
                except Exception as error:
                    # Whatever it is, it is the matter of this table alone.
                    self._due[table] = time.monotonic() + self._backoff(table).next()
                    problem = problem or error
        if problem is not None:
            raise problem
        return bool(waiting)

    def _backoff(self, table: str) -> Backoff:
        return self._backoffs.setdefault(table, Backoff())

    def _show(self, rows: Mapping[str, int]) -> None:
        events.rows_waiting(self._route, {**dict.fromkeys(self._shown, 0), **rows})
        self._shown = set(rows)

    def _try_table(self, table: str) -> None:
        ledger, backoff = self.delivery.ledger, self._backoff(table)
        for _ in range(PARTS_PER_TURN):
            part = ledger.first_waiting(self._route, table)
            if part is None or self.delivery.stopping.is_set():
                return
            try:
                self._try(part)
            except (TransientError, RefusedError, ContradictionError, RouteError, WorkerLost) as error:
                wait = backoff.next()
                self._due[table] = time.monotonic() + wait
                ledger.note_attempt(part, str(error))
                events.table_still_away(self._route, table, part.rows, str(error), wait)
                return
            backoff.reset()

    def _try(self, part: WaitingPart) -> None:
        staged = self._stage(part)
        receipt = self._write(staged) if staged.parts else self._written_before(part)
        faults.reach("retry.destination_done")
        with self.delivery.settling:
            self._settle(staged, receipt)
        self._staged.pop(part.table, None)

    def _written_before(self, part: WaitingPart) -> Receipt:
        """Of a part of which nothing is left to write, what an attempt before it was declared done has written."""
        batch = part.batch
        found = [
            TableReceipt(load.table, load.rows, load.failures, repeated=True)
            for load in self.delivery.destination.loads(batch.scope, batch.route)
            if (load.batch.number, load.table) == (batch.number, part.table)
        ]
        return Receipt(found)

    def _stage(self, part: WaitingPart) -> _Staged:
        """The part's rows; those of an attempt before are used again."""
        known = self._staged.get(part.table)
        if known is not None and replace(known.part, attempts=0, reason="") == replace(part, attempts=0, reason=""):
            return known
        oldest = {partition: self.delivery.log.bounds(partition).oldest for partition in part.batch.ranges}
        for gap in gaps_of_waiting(oldest, part):
            raise refused(gap)
        done = [(p, each) for p, found in _without(part.acknowledged, part.passed_over).items() for each in found]
        certain, acknowledged = 0, part.rows
        # How many rows there were of records that are gone nobody can say: whatever is missing in the end.
        if all(start >= oldest[partition] for partition, (start, _) in done):
            reports = [self.carry({partition: each}, {}) for partition, each in done]
            certain = sum(_rows_of(part.table, each.parts) for each in reports)
            acknowledged = sum(self._rows_for(part, each) for each in reports)
        report = self.carry(part.batch.ranges, _both(part.passed_over, part.acknowledged))
        missing = part.rows - certain - _rows_of(part.table, report.parts)
        if missing > 0:
            failing = failing_now(report, self._failed_before(part)) if report.failed_rows else None
            refuse_to_drop(part, missing, failing, self._new_tables(part, report))
        parts = [self._moved(each) for each in report.parts if each.table == part.table]
        self._staged[part.table] = _Staged(part, parts, acknowledged)
        return self._staged[part.table]

    def _rows_for(self, part: WaitingPart, report: BatchReport) -> int:
        """How many rows a table may have had of these records at most: also those that fail now, or go elsewhere."""
        names = {part.table, *self._new_tables(part, report)}
        return sum(_rows_of(table, report.parts) for table in names) + report.failed_rows

    def _new_tables(self, part: WaitingPart, report: BatchReport) -> set[str]:
        """Tables that had nothing of the batch when it was committed."""
        known = self.delivery.ledger.tables_of(part)
        return set() if known is None else {each.table for each in report.parts} - known

    def _failed_before(self, part: WaitingPart) -> set[tuple[int, int]]:
        extent = self.delivery.ledger.failed_extent(self._route)
        entries = self.delivery.failed_store.read(self._route, extent)
        return {(e.record.partition, e.record.offset) for e in entries if e.batch == part.batch.number}

    def _moved(self, part: Part) -> Part:
        """The same file, where the next part does not clean up."""
        if not part.path:
            return part
        self.directory.mkdir(parents=True, exist_ok=True)
        return replace(part, path=str(shutil.move(part.path, self.directory / Path(part.path).name)))

    def _write(self, staged: _Staged) -> Receipt:
        part, log, ledger = staged.part, self.delivery.log, self.delivery.ledger
        waiting = {table: told.first for table, told in ledger.waiting_tables(self._route).items()}
        batch = replace(
            part.batch,
            origin=Origin.of(log, part.batch.ranges).to_text(),
            waiting=waiting,
            waiting_as=[name for name in ledger.waiting_as(self._route) if name != part.batch.route],
            order=RangeOrder(log, part.batch.ranges),
        )
        book = RouteBook(ledger, self._route)
        whole = False
        try:
            self._watch.before_try(self.delivery.destination, {part.table}, book, batch.number, again=True)
            receipt = self.delivery.destination.write(batch, staged.parts, book)
            away = next((table.away for table in receipt.tables if table.away is not None), None)
            if away is not None:
                raise away
            whole = True
            return receipt
        finally:
            self._watch.after_try(book, whole)

    def _settle(self, staged: _Staged, receipt: Receipt) -> None:
        part, failures = staged.part, receipt.failures
        failed = sum(rows.num_rows for rows in failures)
        # What an earlier attempt has written it has written, with what was acknowledged since.
        earlier = all(table.repeated or (table.resumed and staged.acknowledged) for table in receipt.tables)
        if not earlier and receipt.rows + failed != staged.rows:
            raise PenstockError(
                "PEN-RTE-022",
                f"{staged.rows} rows for table '{part.table}' were staged and its destination accounts for"
                f" {receipt.rows + failed}.",
                "This is a defect of the destination; they wait on.",
            )
        settlement = _settlement(part, receipt, failed, staged.acknowledged)
        records = originals(self.delivery.log, failures)
        settlement = self.delivery.with_failed(settlement, part.batch.number, records, failed)
        faults.reach("retry.before_ledger_commit")
        if self.delivery.ledger.settle_waiting(part, settlement):
            events.table_caught_up(self._route, part.batch.number, part.table, settlement.loaded, settlement.failed)
        for each in staged.parts:
            if each.path:
                Path(each.path).unlink(missing_ok=True)


def _settlement(part: WaitingPart, receipt: Receipt, failed: int, acknowledged: int) -> Settlement:
    # Of what was acknowledged since, an earlier attempt may have written some.
    left_out = min(acknowledged, max(0, part.rows - receipt.rows - failed))
    difference = part.rows - receipt.rows - failed - left_out
    skipped = {ACKNOWLEDGED: left_out, CHANGED: max(0, difference)}
    added = {CHANGED: max(0, -difference)}
    return Settlement(
        part.rows,
        receipt.rows,
        {label: rows for label, rows in skipped.items() if rows},
        added={label: rows for label, rows in added.items() if rows},
        tables=receipt.tables,
    )


def _rows_of(table: str, parts: Sequence[Part]) -> int:
    return sum(part.rows for part in parts if part.table == table)


def _both(one: Stretches, other: Stretches) -> Stretches:
    return {p: joined([*one.get(p, ()), *other.get(p, ())]) for p in {*one, *other}}


def _without(stretches: Stretches, others: Stretches) -> Stretches:
    """The stretches without what the others have of them."""
    return {
        p: [piece for each in joined(found) for piece in between(each, others.get(p, ()))]
        for p, found in stretches.items()
    }
