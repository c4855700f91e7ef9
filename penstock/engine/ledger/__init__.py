"""The ledger: what every route has taken from the log, and what became of it.

It promises two things. A batch is counted once, however often it is tried: ``begin`` gives a range its number, the same
one at every attempt, and knows a range that was committed. And the books balance: ``commit`` moves the offsets and the
counts in one transaction that the database itself refuses unless in + added = loaded + skipped + failed + waiting.

SQLite (WAL) by default; PostgreSQL by URL when several machines share it.
"""

from __future__ import annotations

from penstock.engine.ledger.accounts import (
    Activity,
    CommittedBatch,
    Extent,
    Position,
    RouteState,
    Settlement,
    Totals,
)
from penstock.engine.ledger.batches import Batches
from penstock.engine.ledger.database import shown_url, sqlite_url
from penstock.engine.ledger.failed_books import FailedBooks
from penstock.engine.ledger.inquiries import Inquiries

__all__ = [
    "Activity",
    "CommittedBatch",
    "Extent",
    "Ledger",
    "Position",
    "RouteState",
    "Settlement",
    "Totals",
    "shown_url",
    "sqlite_url",
]


class Ledger(Batches, Inquiries, FailedBooks):
    """Open it with ``Ledger.open``. Safe to use from several threads and processes at once."""
