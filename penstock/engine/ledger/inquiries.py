"""What people ask of the ledger: totals, rows per table, how a route is doing."""

from __future__ import annotations

import time

import sqlalchemy as sa

from penstock.engine.ledger.accounts import EARLIER, Activity, RouteState, Totals
from penstock.engine.ledger.database import Database


class Inquiries(Database):
    def totals(self, route: str) -> Totals:
        with self.reading() as connection:
            row = connection.execute(sa.select(self._t.totals).filter_by(route=route)).first()
        if row is None:
            return Totals()
        return Totals(row.items, row.added, row.loaded, row.skipped, row.failed, row.waiting)

    def skips(self, route: str) -> dict[str, int]:
        """Skipped items by the step that skipped them."""
        with self.reading() as connection:
            rows = connection.execute(sa.select(self._t.skips).filter_by(route=route))
            return {row.step: row.items for row in rows}

    def additions(self, route: str) -> dict[str, int]:
        """Items that steps made beyond one per record, by step; together they are the total's ``added``."""
        with self.reading() as connection:
            rows = connection.execute(sa.select(self._t.additions).filter_by(route=route))
            found = {row.step: row.items for row in rows}
            total = connection.execute(sa.select(self._t.totals.c.added).filter_by(route=route)).scalar() or 0
        earlier = total - sum(found.values())
        return {EARLIER: earlier, **found} if earlier else found

    def delivered(self, route: str) -> dict[str, int]:
        """Rows per table over the batches that are still listed."""
        d = self._t.deliveries.c
        query = sa.select(d.target, sa.func.sum(d.rows)).where(d.route == route).group_by(d.target).order_by(d.target)
        with self.reading() as connection:
            return {target: int(rows) for target, rows in connection.execute(query)}

    def note(self, route: str, state: RouteState, message: str = "", after: RouteState | None = None) -> None:
        """Say how a route is doing; ``penstock status`` shows it. With ``after``, only if it is still in that state:
        its first batch may have more to say already."""
        with self.writing() as connection:
            if after is not None:
                now = sa.select(self._t.states.c.state).filter_by(route=route).with_for_update()
                if connection.execute(now).scalar() != after:
                    return
            self._note(connection, route, state, message)

    def _note(self, connection: sa.Connection, route: str, state: RouteState, message: str = "") -> None:
        values = {"state": state.value, "since": time.time(), "message": message}
        known = connection.execute(sa.update(self._t.states).filter_by(route=route).values(values))
        if known.rowcount == 0:
            connection.execute(sa.insert(self._t.states).values(route=route, **values))

    def activity(self, route: str) -> Activity | None:
        with self.reading() as connection:
            row = connection.execute(sa.select(self._t.states).filter_by(route=route)).first()
        return None if row is None else Activity(RouteState(row.state), row.since, row.message)
