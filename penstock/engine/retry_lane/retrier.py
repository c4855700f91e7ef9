"""The retry lane of a route: loads what unavailable tables wait for, while the route goes on with new batches.

A table gets the parts of its batches in order, each under the number of its batch, so that a destination recognises one
that it has. Their rows are staged again from the log, which is kept for them, in the lane's own folder. The lane waits
for no batch: the current one may be waiting for the lane.
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
from penstock.engine.delivery.batch_pieces import joined, subtract
from penstock.engine.delivery.deliver_batch import Delivery
from penstock.engine.delivery.log_gaps import gap_error, gaps_of_waiting
from penstock.engine.delivery.passed_records import Stretches
from penstock.engine.delivery.refusals import refused_items
from penstock.engine.delivery.schema_drift import DriftDetector
from penstock.engine.delivery.task_report import BatchReport
from penstock.engine.history.batch_origin import Origin
from penstock.engine.ledger import ACKNOWLEDGED, CHANGED, Settlement, WaitingPart
from penstock.engine.ledger.table_mappings import RouteBook
from penstock.engine.lost_workers.lost_worker import WorkerLost
from penstock.engine.retry_lane.shortfall import newly_failing, refuse_to_drop
from penstock.errors import ContradictionError, PenstockError, RefusedError, RouteError, TransientError
from penstock.log.record_ids import RecordIds
from penstock.log.record_order import RangeOrder

CHECK_EVERY = 1.0
"""Seconds between checks whether something waits."""
PARTS_PER_TURN = 20
"""How many parts a table gets before the next one has its turn."""


@dataclass(frozen=True)
class _StagedPart:
    """A part that was staged again: its rows, and how many were left out because they are acknowledged."""

    part: WaitingPart
    parts: Sequence[Part]
    acknowledged: int

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)


@dataclass
class RetryLane:
    """Retries the tables that wait, when they are due. Used by one thread."""

    delivery: Delivery
    directory: Path
    """Where a part lies while its table is retried."""
    retry_postponed: Callable[[], None] = lambda: None
    """Called as often: for what waits at the destination, and not for a table."""
    on_idle: Callable[[], None] = lambda: None
    """Called when nothing waits any more, to free what staging needs."""
    _watch: DriftDetector = field(default_factory=DriftDetector)
    _due: dict[str, float] = field(default_factory=dict)
    _backoffs: dict[str, Backoff] = field(default_factory=dict)
    _staged: dict[str, _StagedPart] = field(default_factory=dict)
    _shown: set[str] = field(default_factory=set)

    @property
    def _route(self) -> str:
        return self.delivery.plan.name

    def keep_trying(self, ended: threading.Event) -> None:
        """Retry until ``ended`` or until the route stops; at once when a retry is wanted. Errors are logged and tried
        again."""
        backoff = Backoff(first=CHECK_EVERY)
        pause = 0.0
        wanted = self.delivery.retry_wanted
        while True:
            wanted.wait(pause)
            wanted.clear()
            if ended.is_set() or self.delivery.stopping.is_set():
                return
            pause = CHECK_EVERY
            try:
                self.retry_due_tables()
                self.retry_postponed()
                backoff.reset()
            except Exception as error:
                # Whatever it is, the lane must go on: tables wait.
                events.retry_failed(self._route, f"{type(error).__name__}: {error}")
                pause = backoff.next()

    def retry_due_tables(self) -> bool:
        """Load what each due table waits for, until the table is unavailable again. Returns whether some waited."""
        waiting = self.delivery.ledger.waiting_tables(self._route)
        self._report_waiting({name: table.rows for name, table in waiting.items()})
        if waiting and not self.delivery.history_agrees:
            # Only the route's own thread may halt it: to an operator a halted route is one that does nothing.
            self.delivery.check_history_without_halt()
        if not waiting:
            self.on_idle()
        problem: Exception | None = None
        for table in waiting if self.delivery.history_agrees else ():
            if time.monotonic() >= self._due.get(table, 0.0):
                try:
                    self._retry_table(table)
                except Exception as error:
                    # Whatever it is, it concerns this table alone.
                    self._due[table] = time.monotonic() + self._backoff(table).next()
                    problem = problem or error
        if problem is not None:
            raise problem
        return bool(waiting)

    def _backoff(self, table: str) -> Backoff:
        return self._backoffs.setdefault(table, Backoff())

    def _report_waiting(self, rows: Mapping[str, int]) -> None:
        events.rows_waiting(self._route, {**dict.fromkeys(self._shown, 0), **rows})
        self._shown = set(rows)

    def _retry_table(self, table: str) -> None:
        ledger, backoff = self.delivery.ledger, self._backoff(table)
        for _ in range(PARTS_PER_TURN):
            part = ledger.next_waiting_part(self._route, table)
            if part is None or self.delivery.stopping.is_set():
                return
            try:
                self._retry_part(part)
            except (TransientError, RefusedError, ContradictionError, RouteError, WorkerLost) as error:
                wait = backoff.next()
                self._due[table] = time.monotonic() + wait
                ledger.note_attempt(part, str(error))
                events.table_still_unavailable(self._route, table, part.rows, str(error), wait)
                return
            backoff.reset()

    def _retry_part(self, part: WaitingPart) -> None:
        staged = self._stage(part)
        receipt = self._write(staged) if staged.parts else self._written_before(part)
        faults.reach("retry.destination_done")
        with self.delivery.settle_lock:
            self._settle(staged, receipt)
        self._staged.pop(part.table, None)

    def _written_before(self, part: WaitingPart) -> Receipt:
        """What an earlier attempt wrote of a part whose records are all acknowledged since."""
        batch = part.batch
        found = [
            TableReceipt(load.table, load.rows, load.failures, repeated=True)
            for load in self.delivery.destination.loads(batch.scope, batch.route)
            if (load.batch.number, load.table) == (batch.number, part.table)
        ]
        return Receipt(found)

    def _stage(self, part: WaitingPart) -> _StagedPart:
        """Stage the part's rows, or reuse those of an earlier attempt."""
        known = self._staged.get(part.table)
        if known is not None and replace(known.part, attempts=0, reason="") == replace(part, attempts=0, reason=""):
            return known
        oldest = {partition: self.delivery.log.bounds(partition).oldest for partition in part.batch.ranges}
        for gap in gaps_of_waiting(oldest, part):
            raise gap_error(gap)
        done = [(p, each) for p, found in _without(part.acknowledged, part.passed_over).items() for each in found]
        certain, acknowledged = 0, part.rows
        # How many rows the records that are gone had is unknown: then all that is missing may be theirs.
        if all(start >= oldest[partition] for partition, (start, _) in done):
            reports = [self.delivery.restage_batch({partition: each}, {}) for partition, each in done]
            certain = sum(_rows_of(part.table, each.parts) for each in reports)
            acknowledged = sum(self._rows_for(part, each) for each in reports)
        report = self.delivery.restage_batch(part.batch.ranges, _union(part.passed_over, part.acknowledged))
        missing = part.rows - certain - _rows_of(part.table, report.parts)
        if missing > 0:
            failing = newly_failing(report, self._failed_before(part)) if report.failed_rows else None
            refuse_to_drop(part, missing, failing, self._new_tables(part, report))
        parts = [self._move_part(each) for each in report.parts if each.table == part.table]
        self._staged[part.table] = _StagedPart(part, parts, acknowledged)
        return self._staged[part.table]

    def _rows_for(self, part: WaitingPart, report: BatchReport) -> int:
        """The most rows that a table can have had of these records, with those that fail now or go elsewhere."""
        names = {part.table, *self._new_tables(part, report)}
        return sum(_rows_of(table, report.parts) for table in names) + report.failed_rows

    def _new_tables(self, part: WaitingPart, report: BatchReport) -> set[str]:
        """Tables that had nothing of the batch when it was committed."""
        known = self.delivery.ledger.tables_of(part)
        return set() if known is None else {each.table for each in report.parts} - known

    def _failed_before(self, part: WaitingPart) -> set[tuple[int, int, int]]:
        extent = self.delivery.ledger.failed_extent(self._route)
        entries = self.delivery.failed_store.read(self._route, extent)
        return {(e.record.partition, e.record.offset, e.item) for e in entries if e.batch == part.batch.number}

    def _move_part(self, part: Part) -> Part:
        """Move the file to where the next part does not remove it."""
        if not part.path:
            return part
        self.directory.mkdir(parents=True, exist_ok=True)
        return replace(part, path=str(shutil.move(part.path, self.directory / Path(part.path).name)))

    def _write(self, staged: _StagedPart) -> Receipt:
        part, log, ledger = staged.part, self.delivery.log, self.delivery.ledger
        waiting = {name: table.first for name, table in ledger.waiting_tables(self._route).items()}
        batch = replace(
            part.batch,
            origin=Origin.of(log, part.batch.ranges).to_text(),
            waiting=waiting,
            waiting_as=[name for name in ledger.waiting_route_names(self._route) if name != part.batch.route],
            order=RangeOrder(log, part.batch.ranges),
            record_ids=RecordIds(log),
            # What it had under another name is not marked under this one.
            follows=self.delivery.newest_marked() if part.batch.route == self._route else 0,
        )
        book = RouteBook(ledger, self._route)
        finished = False
        try:
            self._watch.before_try(self.delivery.destination, {part.table}, book, batch.number, again=True)
            receipt = self.delivery.destination.write(batch, staged.parts, book)
            unavailable = next((table.unavailable for table in receipt.tables if table.unavailable is not None), None)
            if unavailable is not None:
                raise unavailable
            finished = True
            return receipt
        finally:
            self._watch.after_try(book, finished)

    def _settle(self, staged: _StagedPart, receipt: Receipt) -> None:
        part, failures = staged.part, receipt.failures
        failed = sum(rows.num_rows for rows in failures)
        # What an earlier attempt wrote stays, also records that were acknowledged since.
        earlier = all(table.repeated or (table.resumed and staged.acknowledged) for table in receipt.tables)
        if not earlier and receipt.rows + failed != staged.rows:
            raise PenstockError(
                "PEN-RTE-022",
                f"{staged.rows} rows for table '{part.table}' were staged and its destination accounts for"
                f" {receipt.rows + failed}.",
                "They wait and are tried again. This is a defect of the destination; please report it.",
            )
        marked = self.delivery.tables_with_mark(receipt.tables) if part.batch.route == self._route else ()
        settlement = replace(_settlement(part, receipt, failed, staged.acknowledged), marked=marked)
        settlement = self.delivery.store_failed(settlement, part.batch.number, refused_items(failures), failed)
        faults.reach("retry.before_ledger_commit")
        if self.delivery.ledger.settle_waiting(part, settlement):
            events.table_caught_up(self._route, part.batch.number, part.table, settlement.loaded, settlement.failed)
        for each in staged.parts:
            if each.path:
                Path(each.path).unlink(missing_ok=True)


def _settlement(part: WaitingPart, receipt: Receipt, failed: int, acknowledged: int) -> Settlement:
    # An earlier attempt may have written records that were acknowledged since.
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


def _union(one: Stretches, other: Stretches) -> Stretches:
    return {p: joined([*one.get(p, ()), *other.get(p, ())]) for p in {*one, *other}}


def _without(stretches: Stretches, others: Stretches) -> Stretches:
    """The stretches without the offsets of ``others``."""
    return {
        p: [piece for each in joined(found) for piece in subtract(each, others.get(p, ()))]
        for p, found in stretches.items()
    }
