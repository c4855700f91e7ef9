"""The records that were refused: which one comes first, and their original bytes from the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destinations.contract import AnyDestination, Stager
from penstock.engine.delivery.batch_pieces import Ranges
from penstock.engine.delivery.task import failed_records, read_failed
from penstock.engine.delivery.task_report import BatchReport
from penstock.engine.ledger import Halt
from penstock.engine.route_plan import RoutePlan
from penstock.log.local_log import LocalLog
from penstock.log.record_order import RangeOrder
from penstock.outcome import check_count, failures_of, place_key
from penstock.steps.chain import SOURCE_LABEL, labelled

DESTINATION_LABEL = "destination"
REFUSED = "refused"
_REASON = ["partition", "offset", "step", "code", "message"]


def first_failed(report: BatchReport, log: LocalLog) -> Halt | None:
    """The first record, in the order of the log, that failed in a step or in staging."""
    failed = fixable(batch for file in report.failed for batch in read_failed(file.path))
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


def original_records(log: LocalLog, failures: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The records, as they are in the log, whose rows the destination refused. A record that became several rows comes
    once: it is replayed as a whole, or not at all."""
    if not failures:
        return []
    named = labelled(_unique_records(pa.concat_batches(failures)), DESTINATION_LABEL)
    found = [
        failed_records(rows, named.filter(pc.is_in(place_key(named), value_set=place_key(rows))))
        for rows in log.fetch(named)
    ]
    # The log keeps what is not settled. If it has lost a record all the same, its failure must not vanish with it.
    check_count(DESTINATION_LABEL, named.num_rows, sum(rows.num_rows for rows in found))
    return found


def refused_records(
    plan: RoutePlan, destination: AnyDestination, log: LocalLog, ranges: Ranges, message: str
) -> Iterator[pa.RecordBatch]:
    """The records of ranges that the destination refused as a whole: all records that the steps let through."""
    steps = plan.head_chain()
    stager = destination.stager(plan.stage_dir, plan.casts)
    for partition, (start, end) in ranges.items():
        for rows, outcome in (ran for read in log.read(partition, start, end) for ran in steps.runs(read)):
            # After a step that runs in Spark it is not known here which records are left; such ranges hold one record.
            taken = outcome.kept if plan.rest else stager.add(outcome.kept, rows).kept
            refused = _unique_records(failures_of(taken, REFUSED, message))
            yield failed_records(rows, labelled(refused, DESTINATION_LABEL))
    _discard(stager)


def first_record_in(log: LocalLog, ranges: Ranges) -> tuple[int, int]:
    """The partition and offset of the first record in the ranges."""
    for partition, (start, end) in sorted(ranges.items()):
        for rows in log.read(partition, start, end):
            return partition, rows.column("offset")[0].as_py()
    raise ValueError("there is no record in these ranges")


def _unique_records(failures: pa.RecordBatch) -> pa.RecordBatch:
    """Keeps the first failure of each record."""
    _, first = np.unique(place_key(failures).to_numpy(), return_index=True)
    return failures if len(first) == failures.num_rows else failures.take(pa.array(np.sort(first)))


def all_failed(report: BatchReport, refused: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All records of a batch that go to the failed store, each once."""
    found = chain((rows for file in report.failed for rows in read_failed(file.path)), refused)
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
    seen = np.empty(0, np.int64)
    for rows in failed:
        places, first = np.unique(place_key(rows).to_numpy(), return_index=True)
        fresh = np.isin(places, seen, invert=True)
        seen = np.concatenate([seen, places[fresh]])
        yield rows.take(pa.array(np.sort(first[fresh])))


def _discard(stager: Stager) -> None:
    for part in stager.finish():
        if part.path:
            Path(part.path).unlink(missing_ok=True)
