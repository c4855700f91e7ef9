"""Writes all rows of a batch to a SQL engine, or none: for routes that stop at the first refused record.

``SqlDestination.write`` finds refused rows and loads the others. Here the write ends at the first refused row. What one
table gets is one transaction, so nothing of it stays. A write of several transactions (tables, stretches of a mirror),
or to an engine without transactions, is tried and rolled back first, and loaded only if every row was accepted. A trial
may refuse rows that would be accepted after those before them; the engine then tries fewer at a time, and at last each
record on top of what came before it. Columns and tables that the rows need are made either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.destinations.contract import Batch, Part, Receipt, TableBook
from penstock.destinations.sql.load.attempt import Attempt, WriteRefused
from penstock.destinations.sql.mirror.stage.change_header import decode
from penstock.destinations.sql.schema.ownership import overflow_table
from penstock.destinations.sql.session import known_load
from penstock.errors import RefusedError

if TYPE_CHECKING:
    from penstock.destinations.sql.destination import SqlDestination


def write_all_or_nothing(
    destination: SqlDestination[Any], batch: Batch, parts: Sequence[Part], book: TableBook
) -> Receipt:
    """Write all rows, or none and raise ``RefusedError``. What an earlier attempt loaded cannot be rolled back: then
    the receipt names the refused rows, and all others are written."""
    try:
        if not destination.capabilities.transactions or _transaction_count(destination, parts) > 1:
            trial = _attempt(destination, batch, parts, book, Attempt.TRIAL)
            unavailable = next((table.unavailable for table in trial.tables if table.unavailable is not None), None)
            if unavailable is not None:
                return Receipt([replace(table, rows=0, unavailable=unavailable) for table in trial.tables])
        return _attempt(destination, batch, parts, book, Attempt.STRICT)
    except RefusedError:
        beyond = overflow_table(batch.route, destination.dialect.max_name)
        if _has_loaded_some(destination, batch, {beyond, *(part.table for part in parts)}):
            return destination.write(batch, parts, book)
        raise


def _transaction_count(destination: SqlDestination[Any], parts: Sequence[Part]) -> int:
    """How many transactions the parts take at least: one per table, and in a mirror one per key."""
    return len({(part.table, decode(part.header).key if destination.config.mirrors else ()) for part in parts})


def _attempt(
    destination: SqlDestination[Any], batch: Batch, parts: Sequence[Part], book: TableBook, attempt: Attempt
) -> Receipt:
    try:
        receipt = destination.write_tables(batch, parts, book, attempt)
        for table in receipt.tables:
            if table.failures is not None and not table.repeated:
                # The table refused its rows before any was tried.
                attempt.check_failures(table.failures)
    except WriteRefused as refusal:
        raise RefusedError(
            "PEN-DST-024", str(refusal), "Fix the value or the table, then: penstock failed replay"
        ) from refusal
    return receipt


def _has_loaded_some(destination: SqlDestination[Any], batch: Batch, tables: Iterable[str]) -> bool:
    with destination.session() as session:
        return any(known_load(session, batch, table) is not None for table in tables)
