"""Counts a stretch of the log that a destination already has, without writing it again."""

from __future__ import annotations

import json

import pyarrow as pa

from penstock.destinations.contract import Part, TableReceipt
from penstock.engine.delivery.batch_pieces import Ranges
from penstock.engine.delivery.task_report import BatchReport, rows_by_table
from penstock.engine.ledger import AdoptedBatch
from penstock.outcome import FAILURE_SCHEMA


def account_for(adopted: AdoptedBatch, report: BatchReport) -> tuple[list[TableReceipt], list[Part]]:
    """The receipts of the tables that have their rows, and the parts of all others. ``report`` has the same ranges."""
    staged = rows_by_table(report.parts)
    receipts = []
    for table, text in adopted.tables.items():
        rows = sum(staged[name] for name in adopted.staged_as(table))
        if rows:
            refused = refused_in(text, adopted.ranges).slice(0, rows)
            failures, others = refused if refused.num_rows else None, adopted.meant_for.get(table, ())
            receipts.append(TableReceipt(table, rows - refused.num_rows, failures, repeated=True, meant_for=others))
    there = {name for table in adopted.tables for name in adopted.staged_as(table)}
    return receipts, [part for part in report.parts if part.table not in there]


def refused_in(text: str, ranges: Ranges) -> pa.RecordBatch:
    """The rows in these ranges that a table refused."""
    rows = [
        dict(zip(FAILURE_SCHEMA.names, row, strict=True))
        for row in json.loads(text)
        if row[0] in ranges and ranges[row[0]][0] <= row[1] < ranges[row[0]][1]
    ]
    return pa.RecordBatch.from_pylist(rows, schema=FAILURE_SCHEMA)
