"""What is asked of a route's holding step: to let go of what waits, up to a point in the order of the log, or something
that only this step understands.

An operator asks, or the engine itself when too much of the log is kept for what waits. A request stays here until a
running engine has made a control record of it, so it outlives whoever asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from penstock.engine.ledger.accounts import Act, Operator, Position
from penstock.engine.ledger.database import put_row
from penstock.engine.ledger.interventions import Interventions


@dataclass(frozen=True)
class ReleaseRequest:
    """Nothing that stands at or before the stamp ``up_to`` is to wait any longer."""

    number: int
    up_to: int


@dataclass(frozen=True)
class StepCommand:
    """Something that the step understands, by its name, with what belongs to it as JSON."""

    number: int
    name: str
    data: str


@dataclass(frozen=True)
class StepSetting:
    """A command, and what belongs to it as JSON, that holds until there is another one in its place."""

    command: str
    data: str


@dataclass(frozen=True)
class Holding:
    """Where a route stands and what its steps hold, as of one moment."""

    positions: Mapping[int, Position]
    held: Mapping[int, int]
    """By partition, the lowest offset that waits."""

    @property
    def ranges(self) -> dict[int, tuple[int, int]]:
        """By partition, what the log keeps for what waits, of what the route has read."""
        return {p: (first, self.positions[p].committed) for p, first in self.held.items() if p in self.positions}


class ReleaseRequests(Interventions):
    def holding(self, route: str) -> Holding:
        with self.reading_snapshot() as connection:
            return Holding(self._standing(connection, route).positions, self._held(connection, route))

    def request_release(
        self, route: str, up_to: int, operator: Operator, places: Mapping[int, tuple[int, int]]
    ) -> None:
        """Ask for a release. ``places``: the offsets ``[start, end)`` in which something may wait that goes on, for the
        log of interventions."""
        with self.writing() as connection:
            connection.execute(sa.insert(self._t.releases).values(route=route, up_to=up_to))
            self._record(connection, Act.RELEASE, route, operator, places)

    def release_requests(self, route: str) -> list[ReleaseRequest]:
        """Those that no control record was made of yet, oldest first."""
        r = self._t.releases
        query = sa.select(r).where(r.c.route == route).order_by(r.c.number)
        return [ReleaseRequest(row.number, row.up_to) for row in self.rows(query)]

    def request_command(self, route: str, name: str, data: str, operator: Operator) -> None:
        """Tell the route's holding step something."""
        with self.writing() as connection:
            connection.execute(sa.insert(self._t.commands).values(route=route, name=name, data=data))
            self._record(connection, Act.COMMAND, route, operator, {})

    def commands(self, route: str) -> list[StepCommand]:
        """Those that no control record was made of yet, oldest first."""
        c = self._t.commands
        query = sa.select(c).where(c.c.route == route).order_by(c.c.number)
        return [StepCommand(row.number, row.name, row.data) for row in self.rows(query)]

    def keep_setting(self, route: str, name: str, command: str, data: str, operator: Operator) -> None:
        """Tell the route's holding step something that holds until something else is said under this name: every
        engine that starts tells it again, so it outlives the step's state."""
        values = {"command": command, "data": data}
        with self.writing() as connection:
            put_row(connection, self._t.step_settings, {"route": route, "name": name}, values, values)
            self._record(connection, Act.COMMAND, route, operator, {})

    def settings(self, route: str) -> dict[str, StepSetting]:
        """By name."""
        s = self._t.step_settings
        query = sa.select(s).where(s.c.route == route).order_by(s.c.name)
        return {row.name: StepSetting(row.command, row.data) for row in self.rows(query)}

    def finish_command(self, route: str, number: int) -> None:
        """A control record was made of the command of this number."""
        c = self._t.commands
        with self.writing() as connection:
            connection.execute(sa.delete(c).where(c.c.route == route, c.c.number == number))

    def finish_release_requests(self, route: str, last: int) -> None:
        """A control record was made of the request of this number, and of those before it."""
        r = self._t.releases
        with self.writing() as connection:
            connection.execute(sa.delete(r).where(r.c.route == route, r.c.number <= last))
