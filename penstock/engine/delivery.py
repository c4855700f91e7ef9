"""The batch protocol: from the reports of a batch's tasks to a committed batch. No Spark here.

In order: the ledger fixes the range and its number, the destination writes, the failed store appends, the ledger
commits. A crash between any two of them leads to the same batch again, and each of them does no harm a second time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import pyarrow as pa

from penstock import faults
from penstock.destinations.contract import AnyDestination, Batch, Part, Receipt, Stager, TableReceipt
from penstock.engine import narrate
from penstock.engine.backoff import Backoff
from penstock.engine.book import RouteBook
from penstock.engine.carriage import failed_records, read_failed
from penstock.engine.failed import FailedStore
from penstock.engine.ledger import Ledger, RouteState, Settlement
from penstock.engine.plan import RoutePlan
from penstock.engine.reports import BatchReport
from penstock.engine.unnoted import TableWatch
from penstock.errors import RefusedError, RouteError, TransientError
from penstock.log.local import LocalLog
from penstock.steps.chain import labelled
from penstock.steps.contract import FAILURE_SCHEMA

DESTINATION_LABEL = "destination"


class Stopped(Exception):
    """A stop was asked for before the batch was delivered. It is still in the log; this is no error."""


@dataclass(frozen=True)
class Delivery:
    """Delivers the batches of one route, one after the other."""

    plan: RoutePlan
    destination: AnyDestination
    log: LocalLog
    ledger: Ledger
    failed_store: FailedStore
    stopping: Event
    watch: TableWatch = field(default_factory=TableWatch)

    def deliver(self, report: BatchReport, began: float | None = None) -> None:
        """Returns when the batch is committed, by this call or an earlier one. Raises ``Stopped`` if asked to stop.

        ``began`` is the monotonic time at which the batch's tasks started.
        """
        started = time.monotonic() if began is None else began
        route = self.plan.name
        if not report.ranges:
            return
        owners = self.log.partitions()
        self.ledger.recognise({partition: owners[partition].identity for partition in report.ranges})
        again = self.ledger.pending(route) is not None
        batch = self.ledger.begin(route, report.ranges)
        if batch is None:
            narrate.batch_known(route)
            return
        faults.reach("route.range_fixed")

        refused: list[pa.RecordBatch] = []
        receipts: list[TableReceipt] = []
        try:
            receipts = self._written(batch, report, again)
        except RefusedError as error:
            narrate.batch_refused(route, batch.number, str(error))
            refused = list(self._all_staged(batch, str(error)))
        refused += [self._originals(found) for found in Receipt(receipts).failures]
        faults.reach("route.destination_done")

        loaded = Receipt(receipts).rows
        failed = report.failed_rows + sum(rows.num_rows for rows in refused)
        extent = None
        if failed:
            extent = self.failed_store.append(
                route, batch.number, self.ledger.failed_extent(route), _all_failed(report, refused)
            )
        faults.reach("route.before_ledger_commit")
        settlement = Settlement(
            items=report.items,
            loaded=loaded,
            skipped=report.skipped,
            failed=failed,
            added=report.added,
            tables=receipts,
            failed_extent=extent,
            seconds=time.monotonic() - started,
        )
        self.ledger.commit(batch, settlement)
        narrate.batch_committed(
            route, batch.number, loaded, sum(report.skipped.values()), failed, 0, settlement.seconds
        )

    def _written(self, batch: Batch, report: BatchReport, again: bool) -> list[TableReceipt]:
        """Write until every table is written, waiting while the destination is away. What is written stays written:
        only the other tables are tried again, by this call or after a crash (``again``)."""
        staged: Counter[str] = Counter()
        for part in report.parts:
            staged[part.table] += part.rows
        done = {table.table: table for table in self.ledger.tables_loaded(batch)}
        backoff = Backoff()
        first = True
        # A batch without rows is written too, once. One whose tables are all noted is not: to a destination it would
        # look as if the batch had become empty.
        while len(done) < len(staged) or (first and not staged):
            parts = [part for part in report.parts if part.table not in done]
            try:
                receipts = self._tried(batch, parts, again or not first)
                problem = next((table.away for table in receipts if table.away is not None), None)
            except TransientError as error:
                receipts, problem = (), error
            first = False
            for table in receipts:
                if table.away is None:
                    self._check(table, staged[table.table])
                    done[table.table] = table
                    if table.failures is None:
                        self.ledger.table_loaded(batch, table)
            if problem is not None:
                self._wait(batch, backoff, problem)
            elif len(done) < len(staged):
                raise _unaccounted(batch.route, sum(staged.values()), Receipt(list(done.values())).rows)
        if backoff.waited:
            self.ledger.note(self.plan.name, RouteState.RUNNING)
        return list(done.values())

    def _tried(self, batch: Batch, parts: Sequence[Part], again: bool) -> Sequence[TableReceipt]:
        book = RouteBook(self.ledger, batch.route)
        whole = False
        try:
            self.watch.before_try(self.destination, {part.table for part in parts}, book, batch.number, again)
            receipts = self.destination.write(batch, parts, book).tables
            whole = all(table.away is None for table in receipts)
            return receipts
        finally:
            self.watch.after_try(book, whole)

    def _check(self, table: TableReceipt, staged: int) -> None:
        accounted = table.rows + (table.failures.num_rows if table.failures is not None else 0)
        if accounted != staged:
            raise _unaccounted(self.plan.name, staged, accounted)

    def _wait(self, batch: Batch, backoff: Backoff, problem: TransientError) -> None:
        wait = backoff.next()
        self.ledger.note(self.plan.name, RouteState.RETRYING, str(problem))
        narrate.destination_unavailable(self.plan.name, str(problem), wait)
        if self.stopping.wait(wait):
            narrate.batch_put_off(self.plan.name, batch.number)
            raise Stopped from problem

    def _all_staged(self, batch: Batch, message: str) -> Iterator[pa.RecordBatch]:
        """The original records of everything that was staged, each failed with the destination's message."""
        chain = self.plan.head_chain()
        stager = self.destination.stager(self.plan.stage_dir, self.plan.casts)
        for partition, (start, end) in batch.ranges.items():
            for rows in self.log.read(partition, start, end):
                taken = stager.add(chain.run(rows).kept, rows).kept
                yield failed_records(rows, labelled(_failures(taken, message), DESTINATION_LABEL))
        _discard(stager)

    def _originals(self, failures: pa.RecordBatch) -> pa.RecordBatch:
        rows = self.log.fetch(pa.table(failures.select(["partition", "offset"])))
        return failed_records(_one_batch(rows), labelled(failures, DESTINATION_LABEL))


def _unaccounted(route: str, staged: int, accounted: int) -> RouteError:
    return RouteError(
        "PEN-RTE-003",
        f"route '{route}' staged {staged} rows and its destination accounts for {accounted}.",
        "This is a defect of the destination; the batch is not committed.",
    )


def clean_stage(directory: Path) -> None:
    """Remove what an earlier batch, or a task that was tried again, left behind. Only between batches."""
    for file in directory.glob("*"):
        file.unlink(missing_ok=True)


def _failures(rows: pa.RecordBatch, message: str) -> pa.RecordBatch:
    count = rows.num_rows
    code, text = (pa.repeat(pa.scalar(value), count) for value in ("refused", message))
    return pa.RecordBatch.from_arrays(
        [rows.column("partition"), rows.column("offset"), code, text], schema=FAILURE_SCHEMA
    )


def _all_failed(report: BatchReport, refused: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for file in report.failed:
        yield from read_failed(file.path)
    yield from refused


def _discard(stager: Stager) -> None:
    for part in stager.finish():
        if part.path:
            Path(part.path).unlink(missing_ok=True)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
