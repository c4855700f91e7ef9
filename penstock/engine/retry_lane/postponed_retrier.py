"""Gives the destination once more what it did not take: items whose batch is committed, in groups, when they are due.

A retry has a number and no range. The ledger fixes which groups it takes before it is written, and settles them
afterwards, so a crash in between leads to the same retry again. One that is refused as a whole is cut in two, down to
single items.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from penstock import faults
from penstock.backoff import Backoff
from penstock.destinations.contract import Batch, Receipt, TableReceipt
from penstock.engine import events
from penstock.engine.delivery.batch_writer import unaccounted, wait_for_destination
from penstock.engine.delivery.deliver_batch import Delivery, clean_stage, postponed_by, skipped_by
from penstock.engine.delivery.refusals import DESTINATION_LABEL, REFUSED, all_failed, refused_items
from penstock.engine.delivery.task import STAGE_LABEL
from penstock.engine.delivery.task_report import BatchReport, rows_by_table
from penstock.engine.ledger import Postponed, PostponedGroup, RouteState, Settlement
from penstock.engine.ledger.table_mappings import RouteBook
from penstock.engine.lost_workers.lost_worker import WorkerLost
from penstock.engine.stateful.noted_places import as_noted
from penstock.errors import RefusedError, TransientError
from penstock.log.record_ids import RecordIds
from penstock.log.record_order import RangeOrder
from penstock.outcome import failures_of
from penstock.steps.chain import labelled

MOST_GROUPS = 1_000
MOST_ITEMS = 100_000
"""How much a retry takes at most, but for a single group."""

REFUSED_BATCH = ""
"""The group of what a batch had staged that was refused as a whole."""


@dataclass
class PostponedRetrier:
    """Used by one thread at a time."""

    delivery: Delivery
    stage: Callable[[pa.RecordBatch], BatchReport]
    """Stages single items. Raises ``WorkerLost``."""
    _due: dict[int, float] = field(default_factory=dict)
    """When each group is due, by its id."""
    _backoffs: dict[int, Backoff] = field(default_factory=dict)
    """By the number of the retry."""
    _postponed_again: set[int] = field(default_factory=set)
    """Groups, by their id, of what was tried a moment ago."""

    @property
    def _route(self) -> str:
        return self.delivery.plan.name

    def retry_due(self) -> None:
        """Try all groups that are due, each once. What is not taken waits for the next call at least: a destination
        that asks for it back sooner than a try takes would be asked for ever."""
        tried: set[int] = set()
        self._postponed_again.clear()
        while found := self._next_retry(tried):
            number, groups = found
            tried.add(number)
            try:
                self._retry(number, groups)
            except TransientError as error:
                wait = self._backoffs.setdefault(number, Backoff()).next()
                self._postpone_again(number, groups, str(error), wait)
            if self.delivery.stopping.is_set():
                return

    def settle_refused(self) -> None:
        """Settle what is left of a batch that was refused as a whole, before the next one. Waits while the destination
        is unavailable; raises ``Stopped`` and ``OutOfPatience`` as a batch does."""
        backoff, delivery = Backoff(), self.delivery
        while groups := [each for each in self._groups() if each.group == REFUSED_BATCH]:
            number, first = self._begin([each for each in groups if each.number == groups[0].number])
            try:
                self._retry(number, first)
                backoff.reset()
            except TransientError as error:
                wait_for_destination(delivery.ledger, self._route, delivery.patience, delivery.stopping, backoff, error)
        if backoff.waited:
            delivery.ledger.set_state(self._route, RouteState.RUNNING)

    def _groups(self) -> list[PostponedGroup]:
        return self.delivery.ledger.postponed(self._route)

    def _next_retry(self, tried: set[int]) -> tuple[int, list[PostponedGroup]] | None:
        """The retry that was begun first, or a new one of all that is due: of each name the oldest group."""
        now, groups = time.monotonic(), self._groups()
        # Those that are gone are forgotten.
        known, self._due = self._due, {}
        for group in groups:
            self._due[group.id] = known.get(group.id, now + group.delay)
        due = [
            group
            for group in groups
            if self._due[group.id] <= now and group.number not in tried and group.id not in self._postponed_again
        ]
        begun = [group.number for group in due if group.number is not None]
        if begun:
            # All of it, due or not: it may be at the destination.
            return self._begin([group for group in groups if group.number == min(begun)])
        # A record may be in a refused batch and, after its route went back, in another group.
        refused = [group for group in due if group.group == REFUSED_BATCH]
        if refused:
            return self._begin(refused[:1])
        ids = {group.id for group in due}
        seen: set[str] = set()
        chosen: list[PostponedGroup] = []
        for group in groups:
            if group.id in ids and group.group not in seen and not (chosen and _is_much([*chosen, group])):
                chosen.append(group)
            seen.add(group.group)
        return self._begin(chosen) if chosen else None

    def _begin(self, groups: Sequence[PostponedGroup]) -> tuple[int, list[PostponedGroup]]:
        number = groups[0].number
        if number is None:
            number = self.delivery.ledger.begin_retry(self._route, groups)
            faults.reach("postponed.begun")
        return number, [replace(group, number=number) for group in groups]

    def _retry(self, number: int, groups: Sequence[PostponedGroup]) -> None:
        """Raises ``TransientError``."""
        places = pa.concat_batches([as_noted(group.places) for group in groups])
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
        settlement = Settlement(
            places.num_rows, Receipt(receipts).rows, skipped_by(report.skipped, receipts), tables=receipts,
            added=report.added, postponed=postponed_by(receipts, report),
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
        waiting = ledger.postponed_groups(self._route) - {group.group for group in groups}
        tables = {name: table.first for name, table in ledger.waiting_tables(self._route).items()}
        batch = Batch(
            ledger.scope, self._route, number, {}, waiting=tables, waiting_groups=waiting,
            order=RangeOrder(log, _spans(places)), record_ids=RecordIds(log), follows=self.delivery.newest_marked(),
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
        if len(groups) > 1:
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
            self._postponed_again.update(self.delivery.ledger.settle_retry(self._route, number, settlement))
        self._backoffs.pop(number, None)
        events.items_retried(
            self._route, number, settlement.loaded, settlement.items_skipped, settlement.failed,
            settlement.items_waiting,
        )  # fmt: skip

    def _postpone_again(self, number: int, groups: Sequence[PostponedGroup], reason: str, wait: float) -> None:
        self.delivery.ledger.note_retry(self._route, number, reason)
        for group in groups:
            self._due[group.id] = time.monotonic() + wait
        events.retry_not_taken(self._route, sum(group.rows for group in groups), reason, wait)


def _is_much(groups: Sequence[Postponed]) -> bool:
    return len(groups) > MOST_GROUPS or sum(group.rows for group in groups) > MOST_ITEMS


def _spans(places: pa.RecordBatch) -> dict[int, tuple[int, int]]:
    """By partition, from the first of these places to the last."""
    partitions, offsets = (places.column(name).to_numpy() for name in ("partition", "offset"))
    found = {}
    for partition in np.unique(partitions).tolist():
        here = offsets[partitions == partition]
        found[partition] = (int(here.min()), int(here.max()) + 1)
    return found
