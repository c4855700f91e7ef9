"""The ledger's summaries: totals, rows per table, the state of a route."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import sqlalchemy as sa

from penstock.engine.ledger.accounts import EARLIER, OVERFLOWING, PASSING_OVER, Activity, RouteState, TableCount, Totals
from penstock.engine.ledger.database import Database, put_row
from penstock.redaction import redacted

SUBJECTS_AT_ONCE = 500
"""Databases limit the parameters of a statement."""


class Summaries(Database):
    def totals(self, route: str) -> Totals:
        with self.reading() as connection:
            return self._totals(connection, route)

    def table_counts(self, route: str) -> dict[str, TableCount]:
        """What every table has received; their rows sum up to the total's ``loaded``."""
        with self.reading_snapshot() as connection:
            return self._table_counts(connection, route)

    def _totals(self, connection: sa.Connection, route: str) -> Totals:
        row = connection.execute(sa.select(self._t.totals).filter_by(route=route)).first()
        if row is None:
            return Totals()
        return Totals(row.items, row.added, row.loaded, row.skipped, row.failed, row.waiting)

    def _skips(self, connection: sa.Connection, route: str) -> dict[str, int]:
        """Skipped items by the step that skipped them."""
        rows = connection.execute(sa.select(self._t.skips).filter_by(route=route))
        return {row.step: row.items for row in rows}

    def step_counts(self, route: str) -> tuple[dict[str, int], dict[str, int]]:
        """What the holding step of a route has counted in all, and how much it had of what after the last batch."""
        counts, levels = (
            {row.name: row.value for row in self.rows(sa.select(found).filter_by(route=route).order_by(found.c.name))}
            for found in (self._t.step_counts, self._t.step_levels)
        )
        return counts, levels

    def tallies(self, route: str) -> dict[str, dict[str, int]]:
        """What the destination of a route has counted besides rows, by subject and name."""
        t = self._t.tallies
        rows = self.rows(sa.select(t.c.subject, t.c.counts).filter_by(route=route).order_by(t.c.subject))
        return {row.subject: json.loads(row.counts) for row in rows}

    def tally_of(self, route: str, subject: str) -> dict[str, int]:
        """What a route's destination has counted of one subject."""
        t = self._t.tallies
        found = self.rows(sa.select(t.c.counts).filter_by(route=route, subject=subject))
        return dict(json.loads(found[0].counts)) if found else {}

    def _add_tallies(self, connection: sa.Connection, route: str, added: Mapping[str, Mapping[str, int]]) -> None:
        t, subjects = self._t.tallies, sorted(added)
        for start in range(0, len(subjects), SUBJECTS_AT_ONCE):
            some = subjects[start : start + SUBJECTS_AT_ONCE]
            there = sa.and_(t.c.route == route, t.c.subject.in_(some))
            before = {
                row.subject: json.loads(row.counts)
                for row in connection.execute(sa.select(t.c.subject, t.c.counts).where(there)).all()
            }
            sums = {each: dict(Counter(before.get(each, {})) + Counter(added[each])) for each in some}
            # All at once and anew: there may be thousands of subjects in a batch.
            connection.execute(sa.delete(t).where(there))
            rows = [{"route": route, "subject": each, "counts": json.dumps(sums[each])} for each in some]
            connection.execute(sa.insert(t), rows)

    def _additions(self, connection: sa.Connection, route: str) -> dict[str, int]:
        """Items that steps added beyond one per record, by step; their sum is the total's ``added``."""
        rows = connection.execute(sa.select(self._t.additions).filter_by(route=route))
        found = {row.step: row.items for row in rows}
        earlier = self._totals(connection, route).added - sum(found.values())
        return {EARLIER: earlier, **found} if earlier else found

    def _table_counts(self, connection: sa.Connection, route: str) -> dict[str, TableCount]:
        t = self._t
        rows = connection.execute(sa.select(t.table_totals).filter_by(route=route))
        found = {row.target: TableCount(row.rows, row.merged) for row in rows}
        b, d = t.batches.c, t.deliveries.c
        begun = sa.and_(b.route == d.route, b.number == d.number, b.committed_at.is_(None))
        loaded = sa.and_(d.route == route, d.status.not_in((OVERFLOWING, PASSING_OVER)))
        under_way = sa.select(t.deliveries).join(t.batches, begun).where(loaded)
        for row in connection.execute(under_way):
            found[row.target] = replace(found.get(row.target, TableCount()), under_way=row.rows)
        return dict(sorted(found.items()))

    def set_state(self, route: str, state: RouteState, message: str = "", after: RouteState | None = None) -> None:
        """Set the state of a route, which ``penstock status`` shows. With ``after``, only if it is still in that state:
        its first batch may have set a newer one."""
        with self.writing() as connection:
            if after is not None:
                now = sa.select(self._t.states.c.state).filter_by(route=route).with_for_update()
                if connection.execute(now).scalar() != after:
                    return
            self._set_state(connection, route, state, message)

    def _set_state(self, connection: sa.Connection, route: str, state: RouteState, message: str = "") -> None:
        values = {"state": state.value, "since": time.time(), "message": redacted(message)}
        put_row(connection, self._t.states, {"route": route}, values, values)

    def activity(self, route: str) -> Activity | None:
        with self.reading() as connection:
            return self._activity(connection, route)

    def _activity(self, connection: sa.Connection, route: str) -> Activity | None:
        row = connection.execute(sa.select(self._t.states).filter_by(route=route)).first()
        return None if row is None else Activity(RouteState(row.state), row.since, redacted(row.message))
