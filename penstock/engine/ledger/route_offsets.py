"""The position of every route in every partition, and the check that the partitions are still the same ones.

A route's course is one row that whoever moves the route locks first, so that an engine and an operator never do so at
the same time. Its generation says which of the route's checkpoints counts: the ledger is the authority on offsets, and
after a rewind the earlier checkpoint must not be used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from penstock.engine.ledger.accounts import Position
from penstock.engine.ledger.database import Database
from penstock.errors import LedgerError


class RouteOffsets(Database):
    def check_log_identity(self, identities: Mapping[int, str]) -> None:
        """Check that these are the partitions whose offsets are kept here, and note new ones.

        Offsets of another log would make a route skip records that it never saw.
        """
        known = {row.partition: row.identity for row in self.rows(sa.select(self._t.partitions))}
        strangers = sorted(p for p, identity in identities.items() if known.get(p, identity) != identity)
        if strangers:
            raise LedgerError(
                "PEN-LGR-008",
                f"the log is not the one that this ledger knows: partition {strangers[0]} was made again.",
                f"Put the old log back. If it is lost, or if two projects share a ledger, {self._way_to_a_new_ledger}",
            )
        new = [{"partition": p, "identity": identity} for p, identity in identities.items() if p not in known]
        if new:
            try:
                with self.writing() as connection:
                    connection.execute(sa.insert(self._t.partitions), new)
            except IntegrityError:
                # Another route noted them at the same moment; check against its notes.
                self.check_log_identity(identities)

    def open_route(self, route: str, starts: Mapping[int, int]) -> dict[int, Position]:
        """Note where a route starts in partitions it has not seen; return its position in all."""
        known = self.offsets(route)
        new = [
            {"route": route, "partition": partition, "committed": start, "hold": start}
            for partition, start in starts.items()
            if partition not in known
        ]
        with self.writing() as connection:
            self._lock_course(connection, route)
            if new:
                connection.execute(sa.insert(self._t.offsets), new)
            if connection.execute(sa.select(self._t.totals).filter_by(route=route)).first() is None:
                connection.execute(
                    sa.insert(self._t.totals).values(
                        route=route, items=0, added=0, loaded=0, skipped=0, failed=0, waiting=0,
                        failed_entries=0, failed_bytes=0,
                    )
                )  # fmt: skip
        return self.offsets(route)

    def generation(self, route: str) -> int:
        """Which checkpoint of the route counts: it grows by one each time the route is rewound."""
        with self.reading() as connection:
            found = connection.execute(sa.select(self._t.courses.c.generation).filter_by(route=route)).scalar()
        return found or 0

    def _lock_course(self, connection: sa.Connection, route: str) -> sa.Row[Any]:
        """Lock the route's course until the transaction ends, and return it."""
        courses = self._t.courses
        locked = sa.select(courses).filter_by(route=route).with_for_update()
        found = connection.execute(locked).first()
        if found is None:
            connection.execute(sa.insert(courses).values(route=route, generation=0, last_number=0))
            found = connection.execute(locked).one()
        return found

    def offsets(self, route: str) -> dict[int, Position]:
        rows = self.rows(sa.select(self._t.offsets).filter_by(route=route))
        return {row.partition: Position(row.committed, row.hold) for row in rows}

    def routes(self) -> list[str]:
        """Every route that ever opened here, whether or not the config still has it."""
        return [row.route for row in self.rows(sa.select(self._t.totals.c.route).order_by("route"))]
