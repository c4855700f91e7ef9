"""The ledger: what every route has taken from the log, and what became of it.

It promises two things. A batch is counted once, however often it is tried: ``begin`` gives a range its number, the same
one at every attempt, and knows a range that was committed. And the books balance: ``commit`` moves the offsets and the
counts in one transaction that the database itself refuses unless in + added = loaded + skipped + failed + waiting.

SQLite (WAL) by default; PostgreSQL by URL when several machines share it.
"""

from __future__ import annotations

from penstock.engine.ledger.accounts import (
    ACKNOWLEDGED,
    Act,
    Activity,
    CommittedBatch,
    Extent,
    Halt,
    Intervention,
    Operator,
    Position,
    RouteState,
    Settlement,
    Standing,
    Totals,
)
from penstock.engine.ledger.database import shown_url, sqlite_url
from penstock.engine.ledger.failed_books import FailedBooks
from penstock.engine.ledger.interventions import Advance, Interventions

__all__ = [
    "ACKNOWLEDGED",
    "Act",
    "Activity",
    "Advance",
    "CommittedBatch",
    "Extent",
    "Halt",
    "Intervention",
    "Ledger",
    "Operator",
    "Position",
    "RouteState",
    "Settlement",
    "Standing",
    "Totals",
    "shown_url",
    "sqlite_url",
]


class Ledger(Interventions, FailedBooks):
    """Open it with ``Ledger.open``. Safe to use from several threads and processes at once."""
