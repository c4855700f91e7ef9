"""The ledger: what every route has taken from the log, and what became of it.

It promises two things. A batch is counted once, however often it is tried: ``begin`` gives a range its number, the same
one at every attempt, and recognises a range that was committed. And the counts add up: ``commit`` moves offsets and
counts in one transaction, which the database itself refuses unless in + added = loaded + skipped + failed + waiting.

SQLite (WAL) by default; PostgreSQL by URL when several machines share it.
"""

from __future__ import annotations

from penstock.engine.ledger.accounts import (
    ACKNOWLEDGED,
    ADOPTED,
    CHANGED,
    Account,
    Act,
    Activity,
    CommittedBatch,
    DeferredPart,
    Extent,
    Halt,
    Intervention,
    Operator,
    Position,
    RouteState,
    Settlement,
    Standing,
    TableCount,
    Totals,
    WaitingPart,
    WaitingTable,
)
from penstock.engine.ledger.database import shown_url, sqlite_url
from penstock.engine.ledger.failed_entries import FailedEntries
from penstock.engine.ledger.interventions import Advance
from penstock.engine.ledger.route_histories import AdoptedBatch, Adoption, RouteHistories

__all__ = [
    "ACKNOWLEDGED",
    "ADOPTED",
    "CHANGED",
    "Account",
    "Act",
    "Activity",
    "AdoptedBatch",
    "Adoption",
    "Advance",
    "CommittedBatch",
    "DeferredPart",
    "Extent",
    "Halt",
    "Intervention",
    "Ledger",
    "Operator",
    "Position",
    "RouteState",
    "Settlement",
    "Standing",
    "TableCount",
    "Totals",
    "WaitingPart",
    "WaitingTable",
    "shown_url",
    "sqlite_url",
]


class Ledger(RouteHistories, FailedEntries):
    """Open it with ``Ledger.open``. Safe to use from several threads and processes at once."""

    def account(self, route: str) -> Account:
        """Everything about a route as of one moment, also while it is being delivered."""
        with self.reading_snapshot() as connection:
            standing = self._standing(connection, route)
            return Account(
                standing,
                None if standing.pending is None else self._began_at(connection, standing.pending),
                self._activity(connection, route),
                self._totals(connection, route),
                self._table_counts(connection, route),
                self._skips(connection, route),
                self._additions(connection, route),
                self._failed_open(connection, route),
                self._waiting_tables(connection, route),
            )
