"""The batch protocol: from the reports of a batch's tasks to a committed batch. No Spark here.

In order: the ledger fixes the range and its number, the destination writes, the failed store appends, the ledger
commits. A crash between any two of them leads to the same batch again, and each of them does no harm a second time.

As a rule the range that Spark asks for is delivered in one piece. It is cut where the ledger says so (a part of it is
committed, was begun before a crash, was acknowledged by an operator, is the record that the route had stopped at). If
the destination refuses the whole range, it is halved down to single records, however many are refused: a good record
never fails for its neighbours. Each piece is a batch of its own. A record that fails goes to the failed store; on a
route with ``on_error: stop`` it ends the delivery instead, with everything before it delivered and nothing after it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event, Lock

import pyarrow as pa

from penstock import faults
from penstock.backoff import Patience
from penstock.config.pipeline_config import OnError
from penstock.destinations.contract import AnyDestination, Batch, Part, Receipt, TableReceipt
from penstock.engine import events
from penstock.engine.delivery import refusals
from penstock.engine.delivery.batch_pieces import (
    Order,
    Piece,
    Ranges,
    halves,
    offset_count,
    plan_pieces,
    remaining,
    split_around,
    starts_with,
)
from penstock.engine.delivery.batch_receipts import noted_rows, of_earlier, postponed_by, skipped_by
from penstock.engine.delivery.batch_writer import AcksChanged, BatchWriter, Stopped
from penstock.engine.delivery.halts import Halted, halt_after, halt_before, halt_over
from penstock.engine.delivery.passed_records import NOTHING, Stretches, stage_without, with_already_loaded
from penstock.engine.delivery.schema_drift import DriftDetector
from penstock.engine.delivery.task import fail_ranges, read_rows, stage_ranges
from penstock.engine.delivery.task_report import BatchReport, rows_by_table
from penstock.engine.failed.failed_items import failed_items
from penstock.engine.failed.failed_store import FailedStore
from penstock.engine.history.batch_origin import Origin
from penstock.engine.history.route_history import History
from penstock.engine.ledger import (
    ACKNOWLEDGED,
    DeferredPart,
    Halt,
    Ledger,
    Postponed,
    Settlement,
    Standing,
)
from penstock.engine.lost_workers.lost_worker import WorkerLost
from penstock.engine.route_plan import RoutePlan
from penstock.engine.route_sources import own_sources
from penstock.engine.stateful.noted_places import notes_by_place
from penstock.engine.stateful.step_holds import holds_in_order
from penstock.errors import ContradictionError, RefusedError, TransientError
from penstock.log.local_log import LocalLog
from penstock.log.record_ids import RecordIds
from penstock.log.record_order import LogOrder, RangeOrder
from penstock.steps.chain import OF_FAILED_LABEL


class StateBehind(Stopped):
    """The state of a holding step is older than what was delivered: it must be built anew from what waits."""


@dataclass(frozen=True)
class Delivery:
    """Delivers the batches of one route, one after the other."""

    plan: RoutePlan
    destination: AnyDestination
    log: LocalLog
    ledger: Ledger
    failed_store: FailedStore
    stopping: Event
    watch: DriftDetector = field(default_factory=DriftDetector)
    restage_ranges: Callable[[Ranges], BatchReport] | None = None
    """Stages ranges anew where a step runs in Spark; routes of Arrow steps alone need none."""
    patience: Patience = field(default_factory=Patience)
    """How long to wait for a destination that is unavailable."""
    history: History | None = None
    """Tells whether the route may go on with what it finds; asked once."""
    history_checked: Event = field(default_factory=Event)
    """Set once the destination was found to agree."""
    settle_lock: Lock = field(default_factory=Lock)
    """Held from when failed records are stored until they are counted: two at a time would overwrite each other."""
    retry_wanted: Event = field(default_factory=Event)
    """Set when something that waits at the destination has become due."""

    @property
    def order(self) -> Order:
        return LogOrder(self.log)

    def deliver(self, report: BatchReport, began: float | None = None) -> None:
        """Returns when all that the report covers is committed, by this call or an earlier one. Raises ``Stopped`` if
        asked to stop or out of patience, and ``Halted`` at a record that fails on a route with ``on_error: stop``.

        ``began`` is the monotonic time at which the batch's tasks started.
        """
        self._deliver(report.ranges, report, began)

    def deliver_isolated(self, ranges: Ranges, began: float | None = None) -> None:
        """Delivers ranges over which a worker was lost: there is no report, so they are staged anew, in pieces."""
        self._deliver(ranges, None, began)

    def _deliver(self, ranges: Ranges, report: BatchReport | None, began: float | None) -> None:
        started = time.monotonic() if began is None else began
        if not ranges:
            return
        owners = self.log.partitions()
        self.ledger.check_log_identity({partition: owners[partition].identity for partition in ranges})
        self._check_local_state()
        standing = self.ledger.standing(self.plan.name)
        left = remaining(ranges, {p: position.committed for p, position in standing.positions.items()})
        if not left:
            events.batch_known(self.plan.name)
            return
        if self.plan.holding:
            self._deliver_held(ranges, left, report, standing.pending is not None, started)
            return
        todo = deque(_plan_pieces({**self._pending_of_dropped_sources(standing), **left}, standing, self.order))
        while todo:
            piece = todo.popleft()
            if piece.acknowledged:
                self._pass_over(piece.ranges)
                continue
            behind = sum(offset_count(other.ranges) for other in todo)
            try:
                passed_over = self.ledger.acknowledged_in(self.plan.name, piece.ranges)
                usable = report if piece.ranges == ranges and not passed_over else None
                found = self.restage_piece(piece, passed_over) if usable is None else usable
            except WorkerLost as lost:
                todo.extendleft(reversed(self.split_lost_piece(piece, lost)))
            else:
                todo.extendleft(reversed(self._deliver_piece(piece, found, passed_over, behind, started)))
            started = time.monotonic()
            if todo and self.stopping.is_set():
                raise Stopped

    def _deliver_held(
        self, ranges: Ranges, left: Ranges, report: BatchReport | None, again: bool, started: float
    ) -> None:
        """Deliver a batch of a route with a holding step: in one piece, because what it has staged depends on state,
        and cannot be staged anew from its range."""
        if report is None or left != {p: stretch for p, stretch in ranges.items() if stretch[0] < stretch[1]}:
            raise StateBehind
        # What the state says that it holds and what the ledger counts are two books: both must say the same.
        if report.waiting_in_all != self.ledger.held_items(self.plan.name) + report.waiting:
            raise StateBehind
        self._deliver_piece(Piece(ranges, again=again), report, NOTHING, 0, started)

    def _pending_of_dropped_sources(self, standing: Standing) -> Ranges:
        """The part of the pending batch from sources that the route no longer reads: it is settled as it was begun."""
        if standing.pending is None:
            return {}
        reads = self.log.partitions(self.plan.sources)
        return {p: stretch for p, stretch in standing.pending.ranges.items() if p not in reads}

    def check_history(self) -> None:
        """Raises ``Halted`` if log, disk or destination contradict what the ledger knows of the route. A destination
        that is unavailable is asked before the first batch."""
        try:
            self.check_history_without_halt()
        except ContradictionError as error:
            raise self.halt_on_contradiction(error) from error

    def check_history_without_halt(self) -> None:
        """The same for callers that do not run the route: raises ``ContradictionError`` and does not halt it."""
        if self.history is None or self.history_checked.is_set():
            return
        self.history.check_local_state(self.plan.name, self.plan.sources)
        try:
            self._check_target()
        except TransientError:
            return

    def begin(self, ranges: Ranges, digest: int | None = None) -> Batch | None:
        return self.ledger.begin(self.plan.name, ranges, Origin.of(self.log, ranges), digest)

    def _begin_staged(self, piece: Piece, report: BatchReport, passed_over: Stretches) -> Batch | None:
        """Raises ``Halted`` for a batch that was begun with other rows and is at the destination, where it would be
        taken for what was written."""
        batch = self.begin(report.ranges, report.digest)
        # What is acknowledged meanwhile is left out, and the destination is told so.
        if batch is not None and piece.again and not passed_over:
            begun = self.ledger.begun_digest(self.plan.name)
            if begun not in (None, report.digest):
                self.check_not_written(batch)
            if begun != report.digest:
                self.ledger.set_digest(self.plan.name, report.digest)
        return batch

    def check_not_written(self, batch: Batch) -> None:
        """For a batch under way that has other rows now. Raises ``Halted`` if the destination has a part of it."""
        route, number = self.plan.name, batch.number
        if all(load.batch.number != number for load in self.destination.loads(self.ledger.scope, route)):
            return
        verbs = [
            f"penstock offset rewind {route} --to {start} --partition {p}" for p, (start, _) in batch.ranges.items()
        ]
        error = ContradictionError(
            "PEN-RTE-025",
            f"batch {number} of route '{route}' is under way, and a part of it is at the destination, but it would have"
            " other rows now: the config has changed meanwhile.",
            "Put back what was changed (`steps`, `namespace`, `table`) until the batch is done, which `penstock status`"
            f" tells, and change it then. Or deliver its records again, also what is there: {', '.join(verbs)}",
        )
        raise self.halt_on_contradiction(error) from error

    def write(
        self, batch: Batch, parts: Sequence[Part], passed_over: Stretches, again: bool, all_or_nothing: bool = False
    ) -> tuple[list[TableReceipt], list[DeferredPart]]:
        """``passed_over``: what the parts leave out. Raises ``AcksChanged`` if more is acknowledged while it waits."""
        if passed_over:
            self.ledger.note_passed_over(batch)
        writer = BatchWriter(
            self.destination, self.ledger, self.stopping, all_or_nothing, self.watch, self.patience, self._check_target,
            may_defer=not self.plan.holding,
            passes_over=bool(passed_over),
            # A holding route takes no acknowledgements: it could not leave records out of what it has staged.
            acks_changed=lambda: (
                not self.plan.holding and self.ledger.acknowledged_in(self.plan.name, batch.ranges) != passed_over
            ),
        )  # fmt: skip
        known = replace(
            batch, order=self._order_in(batch), record_ids=RecordIds(self.log), waiting_groups=self._groups(),
            follows=self.newest_marked(), read_upto=self.read_upto(batch.ranges),
        )  # fmt: skip
        try:
            receipts = writer.write(known, parts, again)
        except ContradictionError as error:
            raise self.halt_on_contradiction(self._explain(error)) from error
        staged = rows_by_table(parts)
        unavailable = {table.table: str(table.unavailable) for table in receipts if table.unavailable is not None}
        deferred = [DeferredPart(table, staged[table], reason, passed_over) for table, reason in unavailable.items()]
        return [table for table in receipts if table.unavailable is None], deferred

    def _groups(self) -> Mapping[str, Sequence[str]]:
        """What waits at the destination, by group; nothing at one that leaves nothing waiting."""
        return self.ledger.postponed_groups(self.plan.name) if self.destination.capabilities.leaves_waiting else {}

    def read_upto(self, ranges: Ranges) -> dict[int, int]:
        """How far the route has read once these ranges are delivered; nothing for a destination that need not know."""
        if not self.destination.capabilities.conflates_waiting:
            return {}
        standing = {p: position.committed for p, position in self.ledger.offsets(self.plan.name).items()}
        return {**standing, **{p: end for p, (_, end) in ranges.items()}}

    def _order_in(self, batch: Batch) -> RangeOrder:
        """The order of the records of a batch, and of those that waited before it."""
        held = self.ledger.held(self.plan.name) if self.plan.holding else {}
        ranges = {p: (min(start, held.get(p, start)), end) for p, (start, end) in batch.ranges.items()}
        others = {p: (first, self.log.bounds(p).end) for p, first in held.items() if p not in ranges}
        return RangeOrder(self.log, {**ranges, **others})

    def _check_local_state(self) -> None:
        if self.history is None or self.history_checked.is_set():
            return
        try:
            self.history.check_local_state(self.plan.name, self.plan.sources)
        except ContradictionError as error:
            raise self.halt_on_contradiction(error) from error

    def _check_target(self) -> None:
        if self.history is None or self.history_checked.is_set():
            return
        self.history.check_target(self.plan.name, self.plan.sources, self.destination)
        self.history.check_nothing_missing(self.plan.name, self.destination, self.plan.holding is not None)
        self.ledger.note_place(self.plan.name, self.destination.target_path())
        self.history_checked.set()

    def _explain(self, error: ContradictionError) -> ContradictionError:
        """What the destination has found, with the fix, if the route's history knows more about it."""
        if self.history is not None:
            try:
                self.history.check_nothing_missing(self.plan.name, self.destination, self.plan.holding is not None)
            except ContradictionError as known:
                return known
            except TransientError:
                return error
        return error

    def halt_on_contradiction(self, error: ContradictionError) -> Halted:
        """Note that the route waits for an operator, and say why."""
        halted = halt_over(self.ledger, self.plan.name, error)
        self.history_checked.clear()
        return halted

    @property
    def history_agrees(self) -> bool:
        """Whether the destination was found to agree with the ledger and may be written to."""
        return self.history is None or self.history_checked.is_set()

    def _deliver_piece(
        self, piece: Piece, report: BatchReport, passed_over: Stretches, behind: int, started: float
    ) -> Sequence[Piece]:
        """Deliver a piece and commit it, or return the pieces to deliver instead. ``behind``: offsets after it."""
        stops = self.plan.on_error is OnError.STOP
        # What was begun may be at the destination, and must stay what it was.
        failed = refusals.first_failed(report, self.log) if stops and not piece.again else None
        if failed is not None:
            pieces = split_around(report.ranges, (failed.partition, failed.offset), self.order)
            first, _ = pieces[0].ranges.get(failed.partition, (None, None))
            if failed.offset != first:
                return pieces
            raise halt_before(self.ledger, self.plan.name, failed)
        batch = self._begin_staged(piece, report, passed_over)
        if batch is None:
            events.batch_known(self.plan.name)
            return ()
        faults.reach("route.range_fixed")
        if report.is_set_aside:
            events.batch_set_aside(self.plan.name, batch.number)
            self._postpone_batch(batch, report, "a worker was lost over it", started)
            return ()
        try:
            receipts, deferred = self.write(batch, report.parts, passed_over, piece.again, stops)
        except AcksChanged:
            events.acks_changed(self.plan.name, batch.number)
            return (Piece(report.ranges, again=True),)
        except RefusedError as error:
            # However many are refused: a good record may be among the rest, and must not fail for its neighbours.
            if self.plan.holding:
                events.batch_cut(self.plan.name, batch.number, error.what)
                self._postpone_batch(batch, report, error.what, started)
                return ()
            if report.items > 1:
                return self._split_batch(batch, report.items, error)
            if stops:
                place = refusals.first_record_in(self.log, report.ranges)
                halt = Halt(*place, refusals.DESTINATION_LABEL, refusals.REFUSED, error.what)
                raise halt_before(self.ledger, self.plan.name, halt) from error
            events.record_refused(self.plan.name, batch.number, behind, error.what)
            items = refusals.items_of_refused(self.plan, self.destination, self.log, report.ranges, error.what)
            self.settle(batch, report, (), items, report.staged, started)
            return ()
        found = Receipt(receipts).failures
        refused = refusals.refused_items(found)
        report = with_already_loaded(report, receipts, sum(part.rows for part in deferred))
        self.settle(batch, report, receipts, refused, sum(rows.num_rows for rows in found), started, deferred)
        if stops and (missing := refusals.fixable(refusals.all_failed(report, refused))):
            raise halt_after(self.ledger, self.plan.name, self.log, missing, report.ranges)
        return ()

    def _postpone_batch(self, batch: Batch, report: BatchReport, reason: str, started: float) -> None:
        """Commit a batch that was refused as a whole, or lost its worker, with all that it releases waiting: what
        that is depends on state, so it is cut over that, and not over its range."""
        places = [rows for file in report.places for rows in read_rows(file.path)]
        waiting = [Postponed("", pa.concat_batches(places), reason)] if places else []
        self.settle(batch, report, (), (), 0, started, postponed=waiting)

    def _split_batch(self, batch: Batch, records: int, error: RefusedError) -> Sequence[Piece]:
        first, second = halves(batch.ranges, records, self.order)
        self.ledger.shorten(batch, first)
        events.batch_cut(self.plan.name, batch.number, error.what)
        faults.reach("route.batch_cut")
        return Piece(first, again=True), Piece(second)

    def settle(
        self,
        batch: Batch,
        report: BatchReport,
        receipts: Sequence[TableReceipt],
        refused: Iterable[pa.RecordBatch],
        refused_rows: int,
        started: float,
        deferred: Sequence[DeferredPart] = (),
        postponed: Sequence[Postponed] = (),
        marked_by: Sequence[TableReceipt] | None = None,
    ) -> None:
        """``marked_by``: the receipts of what the destination has marked as this batch, if not all of them."""
        faults.reach("route.destination_done")
        postponed = [*postponed, *postponed_by(receipts, report)]
        superseded, wakes = of_earlier(receipts)
        marked = self.tables_with_mark(receipts if marked_by is None else marked_by)
        with self.settle_lock:
            settlement = self.store_failed(
                Settlement(
                    report.items, Receipt(receipts).rows, skipped_by(report.skipped, receipts), waiting=report.waiting,
                    added=report.added, tables=receipts, postponed=postponed, superseded=superseded, wakes=wakes,
                    holds=self._holds_after(report), marked=marked, counts=report.counts, levels=report.levels,
                ),
                batch.number,
                refusals.all_failed(report, refused),
                report.failed_rows + refused_rows,
                noted_rows(report),
            )  # fmt: skip
            faults.reach("route.before_ledger_commit")
            self._commit(batch, replace(settlement, deferred=deferred, seconds=time.monotonic() - started))
            faults.reach("route.ledger_committed")

    def tables_with_mark(self, receipts: Sequence[TableReceipt]) -> Collection[str]:
        """The tables of which the destination keeps a mark."""
        return {receipt.table for receipt in receipts if receipt.rows} if self.destination.capabilities.marks else ()

    def newest_marked(self) -> int:
        """The newest batch that the destination must have; 0 if it keeps no marks."""
        return self.ledger.newest_marked(self.plan.name) if self.destination.capabilities.marks else 0

    def _holds_after(self, report: BatchReport) -> dict[int, int | None]:
        """What steps hold per partition after the batch, also of partitions that it does not cover."""
        if not self.plan.holding:
            return {}
        route = self.plan.name
        own = self.log.partitions(own_sources(route))
        read = {
            p: (position.hold, report.ranges[p][1] if p in report.ranges else position.committed)
            for p, position in self.ledger.offsets(route).items()
            if p not in own
        }
        return {**dict.fromkeys(self.ledger.held(route)), **holds_in_order(self.log, report.holds, read)}

    def store_failed(
        self,
        settlement: Settlement,
        number: int,
        failed: Iterable[pa.RecordBatch],
        rows: int,
        noted: Iterable[pa.RecordBatch] = (),
    ) -> Settlement:
        """Store what failed, ``rows`` rows in all, and count it. ``noted`` has what the holding step has said of items,
        among them those that failed. The caller holds ``settle_lock``."""
        if not rows:
            return settlement
        route, counted = self.plan.name, refusals.CountedBatches(failed)
        cut_out = None
        if self.plan.holding is not None:
            step, notes = self.plan.holding_step(), notes_by_place(noted)
            cut_out = partial(step.cut_out, leaving=self.plan.leaving, notes=notes)
        items = failed_items(self.log, counted, cut_out)
        extent = self.failed_store.append(route, number, self.ledger.failed_extent(route), items)
        skipped = dict(settlement.skipped)
        # Rows that a step in Spark made of one item fail one by one; the item is kept, and replayed, once.
        if counted.rows < rows:
            skipped[OF_FAILED_LABEL] = skipped.get(OF_FAILED_LABEL, 0) + rows - counted.rows
        return replace(settlement, skipped=skipped, failed=counted.rows, failed_extent=extent)

    def _pass_over(self, ranges: Ranges) -> None:
        """Commit records that an operator has declared done, without delivering them."""
        batch = self.begin(ranges)
        if batch is None:
            return
        items = sum(rows.num_rows for p, (start, end) in ranges.items() for rows in self.log.read(p, start, end))
        self._commit(batch, Settlement(items, 0, {ACKNOWLEDGED: items} if items else {}))

    def _commit(self, batch: Batch, settlement: Settlement) -> None:
        superseded = self.ledger.commit(batch, settlement)
        if settlement.wakes:
            self.retry_wanted.set()
        events.step_counted(batch.route, settlement.counts, settlement.levels)
        events.batch_committed(
            batch.route,
            batch.number,
            settlement.loaded,
            settlement.items_skipped,
            settlement.failed,
            settlement.items_waiting,
            settlement.seconds,
        )
        events.items_superseded(batch.route, superseded)
        for receipt in settlement.tables:
            events.target_counted(batch.route, receipt.tallies)

    def restage_piece(self, piece: Piece, passed_over: Stretches = NOTHING) -> BatchReport:
        """Stage a piece anew, without the records that are passed over; those are counted. What the whole batch had
        staged is removed."""
        clean_stage(self.plan.stage_dir)
        stage = self.restage_ranges or partial(stage_ranges, self.plan, self.log)
        try:
            if passed_over:
                return stage_without(stage, self.plan, self.log, piece.ranges, passed_over)
            return stage(piece.ranges)
        except WorkerLost as lost:
            # What was begun was staged once, and may be at the destination: it is not to blame, and stays as it is.
            if piece.again or offset_count(piece.ranges) > 1:
                raise
            events.deadly_record_failed(self.plan.name, piece.ranges, str(lost))
            return fail_ranges(self.plan, self.log, piece.ranges, lost)

    def restage_batch(self, ranges: Ranges, passed_over: Stretches) -> BatchReport:
        """Stage a batch again, without the records that are passed over. Raises ``WorkerLost``."""
        return self.restage_piece(Piece(ranges, again=True), passed_over)

    def split_lost_piece(self, piece: Piece, lost: WorkerLost) -> Sequence[Piece]:
        if piece.again:
            raise lost
        events.lost_range_split(self.plan.name, piece.ranges, str(lost))
        records = sum(self.log.reader(partition).measure(*stretch)[0] for partition, stretch in piece.ranges.items())
        if records > 1:
            return [Piece(half) for half in halves(piece.ranges, records, self.order)]
        # The offsets around the only record are gone from the log, and did no harm.
        return split_around(piece.ranges, refusals.first_record_in(self.log, piece.ranges), self.order)


def clean_stage(directory: Path) -> None:
    """Remove what an earlier batch, or a task that was retried, left behind. Call it only between batches."""
    for file in directory.glob("*"):
        file.unlink(missing_ok=True)


def _plan_pieces(left: Ranges, standing: Standing, order: Order) -> list[Piece]:
    pending, halt = standing.pending, standing.halt
    begun = pending.ranges if pending is not None and starts_with(left, pending.ranges) else None
    stopped_at = None if halt is None else (halt.partition, halt.offset)
    return plan_pieces(left, order, begun, standing.acknowledged, stopped_at)
