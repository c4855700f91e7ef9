"""Gives the destination once more what it did not take: items whose batch is committed, in groups, when they are due.

A retry has a number and no range. The ledger fixes which groups it takes before it is written, and settles them
afterwards, so a crash in between leads to the same retry again. One that is refused as a whole is cut in two, down to
single items.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from penstock import faults
from penstock.backoff import Backoff
from penstock.destinations.contract import Batch, Receipt, TableReceipt
from penstock.engine import events
from penstock.engine.delivery.batch_receipts import of_earlier, postponed_by, skipped_by
from penstock.engine.delivery.batch_writer import unaccounted, wait_for_destination
from penstock.engine.delivery.deliver_batch import Delivery, clean_stage
from penstock.engine.delivery.refusals import DESTINATION_LABEL, REFUSED, all_failed, refused_items
from penstock.engine.delivery.task import STAGE_LABEL
from penstock.engine.delivery.task_report import BatchReport, rows_by_table
from penstock.engine.ledger import Postponed, PostponedGroup, QueuedGroup, RouteState, Settlement
from penstock.engine.ledger.table_mappings import RouteBook
from penstock.engine.lost_workers.lost_worker import WorkerLost
from penstock.engine.retry_lane.choose_groups import REFUSED_BATCH, choose_groups
from penstock.engine.stateful.noted_places import concat_noted
from penstock.errors import RefusedError, TransientError
from penstock.log.record_ids import RecordIds
from penstock.log.record_order import RangeOrder
from penstock.outcome import failures_of
from penstock.steps.chain import labelled


@dataclass
class PostponedRetrier:
    """Used by one thread at a time."""

    delivery: Delivery
    stage: Callable[[pa.RecordBatch], BatchReport]
    """Stages single items. Raises ``WorkerLost``."""
    _backoffs: dict[int, Backoff] = field(default_factory=dict)
    """Of retries that were not taken, by their number."""
    _not_before: dict[int, float] = field(default_factory=dict)
    """When they are tried again."""
    _postponed_again: set[int] = field(default_factory=set)
    """Groups, by their id, of what was tried a moment ago."""

    @property
    def _route(self) -> str:
        return self.delivery.plan.name

    def has_due(self) -> bool:
        """Whether there is something to try now."""
        return self.delivery.ledger.is_postponed_due(self._route) and bool(self._choose(set()))

    def retry_due(self, turn: Callable[[], AbstractContextManager[bool]] = lambda: nullcontext(True)) -> None:
        """Try all groups that are due, each once. What is not taken waits for the next call at least: a destination
        that asks for it back sooner than a try takes would be asked for ever. Each try has a ``turn`` of its own, which
        says whether there may be one."""
        tried: set[int] = set()
        try:
            while self._retry_next(tried, turn):
                pass
        finally:
            self._postponed_again.clear()

    def _retry_next(self, tried: set[int], turn: Callable[[], AbstractContextManager[bool]]) -> bool:
        """Returns whether there was something to try."""
        with turn() as mine:
            chosen = self._choose(tried) if mine and not self.delivery.stopping.is_set() else ()
            if not chosen:
                return False
            number, groups = self._begin(chosen)
            tried.add(number)
            try:
                self._retry(number, groups)
            except TransientError as error:
                wait = self._backoffs.setdefault(number, Backoff()).next()
                self._postpone_again(number, groups, str(error), wait)
            return True

    def settle_refused(self) -> None:
        """Settle what is left of a batch that was refused as a whole, before the next one. Waits while the destination
        is unavailable; raises ``Stopped`` and ``OutOfPatience`` as a batch does."""
        backoff, delivery = Backoff(), self.delivery
        while queue := [each for each in delivery.ledger.postponed_queue(self._route) if each.group == REFUSED_BATCH]:
            number, first = self._begin([each for each in queue if each.number == queue[0].number])
            try:
                self._retry(number, first)
                backoff.reset()
            except TransientError as error:
                wait_for_destination(delivery.ledger, self._route, delivery.patience, delivery.stopping, backoff, error)
        if backoff.waited:
            delivery.ledger.set_state(self._route, RouteState.RUNNING)

    def _choose(self, tried: set[int]) -> Sequence[QueuedGroup]:
        queue, now = self.delivery.ledger.postponed_queue(self._route), time.monotonic()
        resting = {number for number, due in self._not_before.items() if now < due} | tried
        put_off = {each.id for each in queue if each.number in resting} | self._postponed_again
        return choose_groups(queue, put_off, self.delivery.destination.capabilities.conflates_waiting)

    def _begin(self, chosen: Sequence[QueuedGroup]) -> tuple[int, list[PostponedGroup]]:
        ledger, number = self.delivery.ledger, chosen[0].number
        if number is None:
            number = ledger.begin_retry(self._route, [each.id for each in chosen])
            faults.reach("postponed.begun")
        return number, ledger.retry_groups(self._route, number)

    def _retry(self, number: int, groups: Sequence[PostponedGroup]) -> None:
        """Raises ``TransientError``."""
        places = concat_noted([group.places for group in groups])
        clean_stage(self.delivery.plan.stage_dir)
        try:
            report = self.stage(places)
            self._check_same_rows(number, report)
            receipts = self._write(number, groups, places, report) if report.parts else []
        except RefusedError as error:
            if places.num_rows > 1:
                self._cut(number, groups)
            else:
                self._fail(number, places, DESTINATION_LABEL, REFUSED, error.what)
            return
        except WorkerLost as lost:
            if places.num_rows > 1:
                self._cut(number, groups)
            else:
                events.deadly_record_failed(self._route, _spans(places), str(lost))
                self._fail(number, places, lost.step or STAGE_LABEL, lost.code.value, str(lost))
            return
        faults.reach("postponed.destination_done")
        found = Receipt(receipts).failures
        superseded, wakes = of_earlier(receipts)
        settlement = Settlement(
            places.num_rows, Receipt(receipts).rows, skipped_by(report.skipped, receipts), tables=receipts,
            added=report.added, postponed=postponed_by(receipts, report), superseded=superseded, wakes=wakes,
            marked=self.delivery.tables_with_mark(receipts),
        )  # fmt: skip
        refused = sum(rows.num_rows for rows in found)
        failed = list(all_failed(report, refused_items(found)))
        self._settle(number, settlement, failed, report.failed_rows + refused, [places])

    def _check_same_rows(self, number: int, report: BatchReport) -> None:
        """Raises ``TransientError`` if a retry that was begun has other rows now, and the destination has those that it
        had: they would be taken for each other."""
        ledger = self.delivery.ledger
        begun = ledger.retry_digest(self._route, number)
        if begun == report.digest:
            return
        if begun is not None and any(
            load.batch.number == number for load in self.delivery.destination.loads(ledger.scope, self._route)
        ):
            raise TransientError(
                "PEN-RTE-028",
                f"retry {number} of route '{self._route}' was begun, and a part of it is at the destination, but it"
                " would have other rows now: the config has changed meanwhile.",
                "Put back what was changed (`steps`, `table`) until it is done, and change it then.",
            )
        ledger.set_retry_digest(self._route, number, report.digest)

    def _write(
        self, number: int, groups: Sequence[PostponedGroup], places: pa.RecordBatch, report: BatchReport
    ) -> Sequence[TableReceipt]:
        ledger, log = self.delivery.ledger, self.delivery.log
        waiting = ledger.postponed_groups(self._route, but=number)
        if not self.delivery.destination.capabilities.conflates_waiting:
            for group in groups:
                waiting.pop(group.group, None)
        tables = {name: table.first for name, table in ledger.waiting_tables(self._route).items()}
        batch = Batch(
            ledger.scope, self._route, number, {}, waiting=tables, waiting_groups=waiting,
            order=RangeOrder(log, _spans(places)), record_ids=RecordIds(log), follows=self.delivery.newest_marked(),
            read_upto=self.delivery.read_upto({}),
        )  # fmt: skip
        receipts = self.delivery.destination.write(batch, report.parts, RouteBook(ledger, self._route)).tables
        for table in receipts:
            if table.unavailable is not None:
                raise table.unavailable
        accounted = sum(table.accounted for table in receipts)
        staged = sum(rows_by_table(report.parts).values())
        if accounted != staged:
            raise unaccounted(batch, staged, accounted)
        return receipts

    def _cut(self, number: int, groups: Sequence[PostponedGroup]) -> None:
        """Try each half by itself."""
        pieces: list[Sequence[Postponed]]
        names = list(dict.fromkeys(group.group for group in groups))
        if len(names) > 1:
            # What belongs together is tried together for as long as possible.
            first = set(names[: len(names) // 2])
            pieces = [
                [group for group in groups if group.group in first],
                [group for group in groups if group.group not in first],
            ]
        elif len(groups) > 1:
            middle = len(groups) // 2
            pieces = [groups[:middle], groups[middle:]]
        else:
            (group,) = groups
            middle = group.rows // 2
            halves = group.places.slice(0, middle), group.places.slice(middle)
            pieces = [[replace(group, places=half)] for half in halves]
        self.delivery.ledger.cut_retry(self._route, number, pieces)
        faults.reach("postponed.cut")

    def _fail(self, number: int, places: pa.RecordBatch, step: str, code: str, message: str) -> None:
        failures = labelled(failures_of(places, code, message), step)
        self._settle(number, Settlement(places.num_rows, 0), [failures], places.num_rows, [places])

    def _settle(
        self,
        number: int,
        settlement: Settlement,
        failed: Sequence[pa.RecordBatch],
        rows: int,
        noted: Sequence[pa.RecordBatch],
    ) -> None:
        with self.delivery.settle_lock:
            settlement = self.delivery.store_failed(settlement, number, failed, rows, noted)
            faults.reach("postponed.before_ledger_commit")
            postponed, superseded = self.delivery.ledger.settle_retry(self._route, number, settlement)
        self._postponed_again.update(postponed)
        self._backoffs.pop(number, None)
        self._not_before.pop(number, None)
        events.items_retried(
            self._route, number, settlement.loaded, settlement.items_skipped, settlement.failed,
            settlement.items_waiting,
        )  # fmt: skip
        events.items_superseded(self._route, superseded)
        for receipt in settlement.tables:
            events.target_counted(self._route, receipt.tallies)

    def _postpone_again(self, number: int, groups: Sequence[PostponedGroup], reason: str, wait: float) -> None:
        self.delivery.ledger.note_retry(self._route, number, reason)
        self._not_before[number] = time.monotonic() + wait
        events.retry_not_taken(self._route, sum(group.rows for group in groups), reason, wait)


def _spans(places: pa.RecordBatch) -> dict[int, tuple[int, int]]:
    """By partition, from the first of these places to the last."""
    partitions, offsets = (places.column(name).to_numpy() for name in ("partition", "offset"))
    found = {}
    for partition in np.unique(partitions).tolist():
        here = offsets[partitions == partition]
        found[partition] = (int(here.min()), int(here.max()) + 1)
    return found
