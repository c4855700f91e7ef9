"""What has failed in a batch, in steps, staging and at the destination: which comes first, and all of it, each item
once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destinations.contract import AnyDestination, Stager
from penstock.engine.delivery.batch_pieces import Ranges
from penstock.engine.delivery.task import read_rows
from penstock.engine.delivery.task_report import BatchReport
from penstock.engine.ledger import Halt
from penstock.engine.route_plan import RoutePlan
from penstock.items import ItemKeys
from penstock.log.local_log import LocalLog
from penstock.log.record_order import RangeOrder
from penstock.outcome import failures_of
from penstock.steps.chain import SOURCE_LABEL, labelled

DESTINATION_LABEL = "destination"
REFUSED = "refused"
_REASON = ["partition", "offset", "step", "code", "message"]


def first_failed(report: BatchReport, log: LocalLog) -> Halt | None:
    """The first record, in the order of the log, that failed in a step or in staging."""
    failed = fixable(batch for file in report.failed for batch in read_rows(file.path))
    return first_failure(failed, log, report.ranges) if failed else None


def fixable(failed: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Leaves out records that their source could not read: no change of the route would let them through, so a route
    that stops for the others does not stop for them."""
    named = [batch.filter(pc.not_equal(batch.column("step"), SOURCE_LABEL)) for batch in failed]
    return [batch for batch in named if batch.num_rows]


def first_failure(failed: Iterable[pa.RecordBatch], log: LocalLog, ranges: Ranges) -> Halt:
    """The first failure within the ranges, in the order of the log."""
    reasons = pa.Table.from_batches([batch.select(_REASON) for batch in failed])
    partitions, offsets = (reasons.column(name).to_numpy().astype(np.int64) for name in ("partition", "offset"))
    first = int(np.argmin(RangeOrder(log, ranges).ranks(partitions, offsets)))
    (row,) = reasons.slice(first, 1).to_pylist()
    return Halt(**row)


def refused_items(failures: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """What the destination has refused, by its receipts: each item once."""
    return [labelled(_unique_items(pa.concat_batches(failures)), DESTINATION_LABEL)] if failures else []


def items_of_refused(
    plan: RoutePlan, destination: AnyDestination, log: LocalLog, ranges: Ranges, message: str
) -> Iterator[pa.RecordBatch]:
    """The items of ranges that the destination refused as a whole: all that the steps let through."""
    steps = plan.head_chain()
    stager = destination.stager(plan.stage_dir, plan.casts)
    for partition, (start, end) in ranges.items():
        for rows, outcome in (ran for read in log.read(partition, start, end) for ran in steps.runs(read)):
            # After a step that runs in Spark it is not known here which records are left; such ranges hold one record.
            taken = outcome.kept if plan.rest else stager.add(outcome.kept, rows).kept
            refused = _unique_items(failures_of(taken, REFUSED, message))
            yield labelled(refused, DESTINATION_LABEL)
    _discard(stager)


def first_record_in(log: LocalLog, ranges: Ranges) -> tuple[int, int]:
    """The partition and offset of the first record in the ranges."""
    for partition, (start, end) in sorted(ranges.items()):
        for rows in log.read(partition, start, end):
            return partition, rows.column("offset")[0].as_py()
    raise ValueError("there is no record in these ranges")


def _unique_items(failures: pa.RecordBatch) -> pa.RecordBatch:
    """Keeps the first failure of each item."""
    return failures.filter(pa.array(ItemKeys.of(failures).first()))


def all_failed(report: BatchReport, refused: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All failures of a batch, each item once."""
    found = chain((rows for file in report.failed for rows in read_rows(file.path)), refused)
    return _unique_over_batches(found) if report.added else found


class CountedBatches:
    """Counts the rows of batches while they are iterated."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch


def _unique_over_batches(failed: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    seen = ItemKeys(np.empty(0, np.int64), np.empty(0, np.int64))
    for rows in failed:
        found = ItemKeys.of(rows)
        fresh = rows.filter(pa.array(found.first() & ~found.within(seen)))
        seen = seen.and_of(fresh)
        yield fresh


def _discard(stager: Stager) -> None:
    for part in stager.finish():
        if part.path:
            Path(part.path).unlink(missing_ok=True)
