"""What the receipts of a batch say in all, beside what its tasks have reported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from penstock.destinations.contract import Superseded, TableReceipt
from penstock.engine.delivery.task import read_rows
from penstock.engine.delivery.task_report import BatchReport
from penstock.engine.ledger import Postponed
from penstock.engine.stateful.noted_places import with_notes


def postponed_by(receipts: Iterable[TableReceipt], report: BatchReport) -> list[Postponed]:
    """What the destination does not take yet, of what the report has staged."""
    waiting = [rows for table in receipts for rows in table.waiting]
    if not waiting:
        return []
    known = list(noted_rows(report))
    return [
        Postponed(
            rows.group, with_notes(rows.places, known) if known else rows.places, rows.reason, rows.due, rows.about
        )
        for rows in waiting
    ]  # fmt: skip


def of_earlier(receipts: Iterable[TableReceipt]) -> tuple[list[Superseded], set[str]]:
    """What the destination says of what waited before: what is superseded, and which groups are due at once."""
    tables = list(receipts)
    return [each for table in tables for each in table.superseded], {name for table in tables for name in table.wakes}


def noted_rows(report: BatchReport) -> Iterator[pa.RecordBatch]:
    """What its holding step has said of the items that a report has staged, and of those that failed behind it."""
    return (rows for file in (*report.places, *report.noted) for rows in read_rows(file.path))


def skipped_by(skipped: Mapping[str, int], receipts: Iterable[TableReceipt]) -> dict[str, int]:
    """What steps have skipped, and what the destination does not need, by the reason."""
    total = Counter(skipped)
    for table in receipts:
        total.update(table.skipped)
    return dict(total)
