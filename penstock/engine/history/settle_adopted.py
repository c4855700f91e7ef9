"""Settles what a route has adopted: what an earlier ledger, or another route, had begun to deliver."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from penstock.destinations.contract import Receipt, TableReceipt
from penstock.engine.delivery import refusals
from penstock.engine.delivery.batch_pieces import Piece, plan_pieces, remaining, starts_with
from penstock.engine.delivery.batch_writer import AcksChanged, Stopped
from penstock.engine.delivery.deliver_batch import Delivery, clean_stage
from penstock.engine.delivery.passed_records import NOTHING, Stretches
from penstock.engine.delivery.task_report import BatchReport
from penstock.engine.history.adoption import account_for
from penstock.engine.ledger import ADOPTED, AdoptedBatch, DeferredPart
from penstock.engine.lost_workers.lost_worker import WorkerLost


def settle_adopted(delivery: Delivery) -> None:
    """Count what the route has adopted, and load what is missing of it. Raises as ``deliver`` does."""
    adopted = delivery.ledger.adopted_batches(delivery.plan.name)
    for each in adopted:
        standing = delivery.ledger.standing(delivery.plan.name)
        left = remaining(each.ranges, {p: position.committed for p, position in standing.positions.items()})
        pending = standing.pending
        begun = pending.ranges if pending is not None and starts_with(left, pending.ranges) else None
        todo = deque(plan_pieces(left, delivery.order, begun))
        while todo:
            todo.extendleft(reversed(_settle_piece(delivery, each, todo.popleft())))
            clean_stage(delivery.plan.stage_dir)
            if delivery.stopping.is_set():
                raise Stopped
    if adopted:
        delivery.ledger.finish_adoption(delivery.plan.name)


def _settle_piece(delivery: Delivery, adopted: AdoptedBatch, piece: Piece) -> Sequence[Piece]:
    """Settle a piece of what was adopted, or return the pieces to settle instead."""
    # What was settled elsewhere is at the destination, whatever was acknowledged here.
    known = NOTHING if adopted.settled else delivery.ledger.acknowledged_in(delivery.plan.name, piece.ranges)
    try:
        report = delivery.restage_piece(piece, known)
    except WorkerLost as lost:
        return delivery.split_lost_piece(piece, lost)
    try:
        _commit(delivery, replace(adopted, ranges=piece.ranges), report, known)
    except AcksChanged:
        return (replace(piece, again=True),)
    return ()


def _commit(delivery: Delivery, adopted: AdoptedBatch, report: BatchReport, passed_over: Stretches) -> None:
    started = time.monotonic()
    batch = delivery.begin(adopted.ranges)
    if batch is None:
        return
    receipts, missing = account_for(adopted, report)
    if adopted.settled:
        rows_left = sum(part.rows for part in missing if part.table not in adopted.wanting)
        label = {ADOPTED: report.skipped.get(ADOPTED, 0) + rows_left} if rows_left else {}
        report = replace(report, skipped={**report.skipped, **label})
        missing = [part for part in missing if part.table in adopted.wanting]
    deferred: Sequence[DeferredPart] = ()
    written: Sequence[TableReceipt] = ()
    if missing:
        written, deferred = delivery.write(batch, missing, passed_over, again=True)
        receipts += written
    found = Receipt(receipts).failures
    refused_rows = sum(rows.num_rows for rows in found)
    refused = refusals.refused_items(found)
    # What was adopted is marked under another name or number.
    delivery.settle(batch, report, receipts, refused, refused_rows, started, deferred, marked_by=written)
