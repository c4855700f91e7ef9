"""The ledger: what every route has taken from the log, and what became of it.

It promises two things. A batch is counted once, however often it is tried: ``begin`` gives a range its number, the same
one at every attempt, and recognises a range that was committed. And the counts add up: ``commit`` moves offsets and
counts in one transaction, which the database itself refuses unless in + added = loaded + skipped + failed + waiting.

SQLite (WAL) by default; PostgreSQL by URL when several machines share it.
"""

from __future__ import annotations

from penstock.engine.ledger.accounts import ACKNOWLEDGED as ACKNOWLEDGED
from penstock.engine.ledger.accounts import ADOPTED as ADOPTED
from penstock.engine.ledger.accounts import CHANGED as CHANGED
from penstock.engine.ledger.accounts import Account as Account
from penstock.engine.ledger.accounts import Act as Act
from penstock.engine.ledger.accounts import Activity as Activity
from penstock.engine.ledger.accounts import CommittedBatch as CommittedBatch
from penstock.engine.ledger.accounts import DeferredPart as DeferredPart
from penstock.engine.ledger.accounts import Extent as Extent
from penstock.engine.ledger.accounts import Halt as Halt
from penstock.engine.ledger.accounts import Intervention as Intervention
from penstock.engine.ledger.accounts import MarkedTable as MarkedTable
from penstock.engine.ledger.accounts import Operator as Operator
from penstock.engine.ledger.accounts import Position as Position
from penstock.engine.ledger.accounts import Postponed as Postponed
from penstock.engine.ledger.accounts import PostponedGroup as PostponedGroup
from penstock.engine.ledger.accounts import QueuedGroup as QueuedGroup
from penstock.engine.ledger.accounts import RouteState as RouteState
from penstock.engine.ledger.accounts import Settlement as Settlement
from penstock.engine.ledger.accounts import Standing as Standing
from penstock.engine.ledger.accounts import TableCount as TableCount
from penstock.engine.ledger.accounts import Totals as Totals
from penstock.engine.ledger.accounts import WaitingPart as WaitingPart
from penstock.engine.ledger.accounts import WaitingTable as WaitingTable
from penstock.engine.ledger.database import shown_url as shown_url
from penstock.engine.ledger.database import sqlite_url as sqlite_url
from penstock.engine.ledger.failed_entries import FailedEntries
from penstock.engine.ledger.interventions import Advance as Advance
from penstock.engine.ledger.release_requests import Holding as Holding
from penstock.engine.ledger.release_requests import ReleaseRequest as ReleaseRequest
from penstock.engine.ledger.release_requests import ReleaseRequests
from penstock.engine.ledger.release_requests import StepCommand as StepCommand
from penstock.engine.ledger.release_requests import StepSetting as StepSetting
from penstock.engine.ledger.route_histories import AdoptedBatch as AdoptedBatch
from penstock.engine.ledger.route_histories import Adoption as Adoption
from penstock.engine.ledger.route_histories import RouteHistories


class Ledger(RouteHistories, ReleaseRequests, FailedEntries):
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
                self._postponed_rows(connection, route),
            )
