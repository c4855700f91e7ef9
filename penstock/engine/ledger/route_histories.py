"""What the ledger knows of where a route's records came from, and what it took over from another history.

A route's lineage says which writers gave the offsets that it delivered: by it a log that was put back is known, and the
first offset that it gave to another record. What is adopted are stretches of the log that the destination has already:
they are settled, in order, before anything else, and counted without being written again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import sqlalchemy as sa

from penstock.engine.ledger.accounts import ADOPTED, Act, Operator, RouteState
from penstock.engine.ledger.interventions import Interventions
from penstock.engine.ledger.ledger_tables import Tables
from penstock.engine.ledger.range_text import ranges_from_text, ranges_to_text
from penstock.errors import LedgerError
from penstock.log.lineage import Incarnation, Lineage


@dataclass(frozen=True)
class AdoptedBatch:
    """A stretch of the log that was delivered under another ledger, name or copy of this ledger."""

    ranges: Mapping[int, tuple[int, int]]
    tables: Mapping[str, str] = field(default_factory=dict)
    """Tables that have their rows of it, each with the rows that it refused, as text."""
    settled: bool = True
    """Whether it was wholly settled there. Of one that was under way, tables that are not named get their rows now."""
    meant_for: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Of tables that have rows of others, which those are."""
    wanting: Collection[str] = ()
    """Tables that still waited for their part of it, where it was settled otherwise: they get it now."""

    def staged_as(self, table: str) -> Sequence[str]:
        """The tables for which the rows are staged that a table has."""
        return self.meant_for.get(table) or (table,)


@dataclass(frozen=True)
class Adoption:
    """All that a route takes over: from where on, stretch by stretch, and the highest batch number that is taken."""

    batches: Sequence[AdoptedBatch]
    last_number: int
    starts: Mapping[int, int] = field(default_factory=dict)
    """Partitions in which the route goes back first: what it delivered behind these offsets is not in this log."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """Tables that the destination's newest batch found waiting, each with the number of the first batch it was
    without."""
    newest: int = 0
    """The number of that batch, if it is one of the route's own."""


class Histories(Interventions):
    def lineages(self, route: str) -> dict[int, Lineage]:
        """Per partition the writers of what the route has begun, as far back as they were noted."""
        with self.reading() as connection:
            rows = connection.execute(sa.select(self._t.lineages).filter_by(route=route))
            return {row.partition: _lineage(row.entries) for row in rows}

    def last_number(self, route: str) -> int:
        """The highest batch number that the route was given here."""
        b, c = self._t.batches.c, self._t.courses.c
        with self.reading() as connection:
            listed = connection.execute(sa.select(sa.func.max(b.number)).where(b.route == route)).scalar()
            abandoned = connection.execute(sa.select(c.last_number).where(c.route == route)).scalar()
        return max(listed or 0, abandoned or 0)

    def has_past(self, route: str) -> bool:
        """Whether the route has begun a batch here, or an operator has said where it starts."""
        t = self._t
        with self.reading() as connection:
            told = connection.execute(sa.select(t.accepted).filter_by(route=route)).first()
            given_up = connection.execute(sa.select(t.courses.c.last_number).filter_by(route=route)).scalar()
            done = sa.select(t.batches.c.number).where(
                t.batches.c.route == route, t.batches.c.committed_at.is_not(None)
            )
            return told is not None or bool(given_up) or connection.execute(done.limit(1)).first() is not None

    def places(self) -> dict[str, str]:
        """Where each route writes to, of those that write to a place on disk."""
        with self.reading() as connection:
            return {row.route: row.place for row in connection.execute(sa.select(self._t.places))}

    def note_place(self, route: str, place: str) -> None:
        if self.places().get(route, "") != place:
            with self.writing() as connection:
                connection.execute(sa.delete(self._t.places).filter_by(route=route))
                connection.execute(sa.insert(self._t.places).values(route=route, place=place))

    def accepted(self, route: str) -> int:
        """Up to which batch number an operator has decided about what the destination has of the route."""
        with self.reading() as connection:
            return connection.execute(sa.select(self._t.accepted.c.number).filter_by(route=route)).scalar() or 0

    def accepted_others(self, route: str) -> dict[tuple[str, str], int]:
        """The same of other ledgers' routes: by scope and name, what the destination had of them at the decision."""
        a = self._t.accepted
        with self.reading() as connection:
            found = connection.execute(sa.select(a).where(a.c.route.startswith(f"{route} ", autoescape=True)))
            places = [(row.route.split(" ", 2), row.number) for row in found]
        return {(place[1], place[2]): number for place, number in places if len(place) == 3}

    def accept_others(self, route: str, numbers: Mapping[tuple[str, str], int]) -> None:
        with self.writing() as connection:
            for (scope, other), number in numbers.items():
                self._accept(connection, f"{route} {scope} {other}", Act.ADOPT, number)

    def accept(self, route: str, number: int, operator: Operator, act: Act) -> None:
        """Note that an operator has decided about what was delivered before, up to a batch number: there are no more
        questions about it, and new batches get higher numbers."""
        courses = self._t.courses
        with self.writing() as connection:
            course = self._at_rest(connection, route, engine_runs=False)
            highest = max(course.last_number, number)
            connection.execute(sa.update(courses).filter_by(route=route).values(last_number=highest))
            self._accept(connection, route, act, number)
            self._record(connection, act, route, operator, {})
            self._note(connection, route, RouteState.STOPPED)

    def start_at(self, route: str, ends: Mapping[int, int], number: int, operator: Operator) -> None:
        """Let a route that has no past here begin at these offsets, whatever was delivered before."""
        offsets = self._t.offsets
        with self.writing() as connection:
            self._at_rest(connection, route, engine_runs=False)
            for partition, end in ends.items():
                here = sa.update(offsets).filter_by(route=route, partition=partition)
                connection.execute(here.values(committed=end, hold=end))
            self._abandon(connection, route)
            highest = max(self._course(connection, route).last_number, number)
            connection.execute(sa.update(self._t.courses).filter_by(route=route).values(last_number=highest))
            self._accept(connection, route, Act.START, number)
            self._record(connection, Act.START, route, operator, {p: (0, end) for p, end in ends.items()})

    def adopt(self, route: str, adoption: Adoption, operator: Operator, engine_runs: bool = False) -> None:
        """Take over what was delivered before. A batch under way is given up: if the destination has some of it, the
        adoption says so."""
        t = self._t
        with self.writing() as connection:
            self._at_rest(connection, route, engine_runs)
            positions = self._standing(connection, route).positions
            self._abandon(connection, route)
            course = self._course(connection, route)
            self._let_go_of_what_is_there(connection, route, adoption)
            for partition, start in adoption.starts.items():
                hold = self._waits_from(connection, route, partition, start)
                connection.execute(
                    sa.update(t.offsets).filter_by(route=route, partition=partition).values(committed=start, hold=hold)
                )
                ahead = t.acknowledged.c
                connection.execute(
                    sa.delete(t.acknowledged).where(
                        ahead.route == route, ahead.partition == partition, ahead.end > start
                    )
                )
                self._note_lineage(connection, route, partition, Lineage(), start)
            highest = max(course.last_number, adoption.last_number, self._highest(connection, route))
            connection.execute(
                sa.update(t.courses)
                .filter_by(route=route)
                .values(generation=course.generation + 1, last_number=highest)
            )
            connection.execute(sa.delete(t.halts).filter_by(route=route))
            connection.execute(sa.delete(t.adopted).filter_by(route=route))
            for place, batch in enumerate(adoption.batches):
                content = {"ranges": ranges_to_text(batch.ranges), "tables": _tables_text(batch)}
                flags = {"settled": int(batch.settled), "wanting": json.dumps(sorted(batch.wanting))}
                connection.execute(sa.insert(t.adopted).values(route=route, place=place, **flags, **content))
            self._accept(connection, route, Act.ADOPT, adoption.last_number)
            reached = _reached(adoption)
            places = {p: (position.committed, reached[p]) for p, position in positions.items() if p in reached}
            self._record(connection, Act.ADOPT, route, operator, places)
            self._note(connection, route, RouteState.STARTING if engine_runs else RouteState.STOPPED)

    def _let_go_of_what_is_there(self, connection: sa.Connection, route: str, adoption: Adoption) -> None:
        """Of the parts that tables wait for by this ledger, those that they have got by a newer copy of it, and those
        of records that this log does not have."""
        gone = []
        for (number, table), ranges in self._waiting_ranges(connection, route).items():
            forked = any(p in adoption.starts and end > adoption.starts[p] for p, (_, end) in ranges.items())
            waits_there = number >= adoption.waiting.get(table, adoption.newest)
            if forked or not waits_there:
                gone.append((number, table))
        self._let_go_of_parts(connection, route, gone, ADOPTED)

    def adopted(self, route: str) -> list[AdoptedBatch]:
        """What was taken over and is still to be settled, in order."""
        a = self._t.adopted
        with self.reading() as connection:
            rows = connection.execute(sa.select(a).filter_by(route=route).order_by(a.c.place)).all()
        return [
            replace(_adopted(row.ranges, json.loads(row.tables), bool(row.settled)), wanting=json.loads(row.wanting))
            for row in rows
        ]

    def adoption_done(self, route: str) -> None:
        with self.writing() as connection:
            connection.execute(sa.delete(self._t.adopted).filter_by(route=route))

    def rename(self, old: str, new: str, operator: Operator) -> None:
        """Let a route go on under another name, with all that is known of it."""
        with self.writing() as connection:
            self._at_rest(connection, old, engine_runs=False)
            self._at_rest(connection, new, engine_runs=False)
            if self._highest(connection, new):
                raise LedgerError(
                    "PEN-LGR-014",
                    f"route '{new}' has delivered by itself: it cannot take over where '{old}' stands.",
                    f"Keep it as it is, and let go of the other: penstock offset drop {old}",
                )
            for table in _by_route(self._t):
                connection.execute(sa.delete(table).where(table.c.route == new))
                connection.execute(sa.update(table).where(table.c.route == old).values(route=new))
            self._accept(connection, new, Act.ADOPT, 0)
            self._record(connection, Act.ADOPT, new, operator, {})

    def drop(self, route: str) -> None:
        """Forget a route: its offsets, its books, its batches."""
        with self.writing() as connection:
            self._at_rest(connection, route, engine_runs=False)
            for table in _by_route(self._t):
                connection.execute(sa.delete(table).where(table.c.route == route))
            self._accept(connection, f"{DROPPED}{route}", Act.DROP, 0)

    def dropped(self) -> set[str]:
        """The routes that an operator has dropped here: what they left at a destination raises no question."""
        a = self._t.accepted.c
        with self.reading() as connection:
            found = connection.execute(sa.select(a.route).where(a.act == Act.DROP.value))
            return {route.removeprefix(DROPPED) for route in found.scalars()}

    def _accept(self, connection: sa.Connection, route: str, act: Act, number: int) -> None:
        connection.execute(sa.delete(self._t.accepted).filter_by(route=route))
        values = {"route": route, "act": act.value, "number": number, "at": time.time()}
        connection.execute(sa.insert(self._t.accepted).values(values))

    def _highest(self, connection: sa.Connection, route: str) -> int:
        b = self._t.batches.c
        return connection.execute(sa.select(sa.func.max(b.number)).where(b.route == route)).scalar() or 0


DROPPED = "dropped "
"""No route's name has a blank in it."""


def _by_route(t: Tables) -> list[sa.Table]:
    return [table for table in t.metadata.tables.values() if "route" in table.c]


def _reached(adoption: Adoption) -> dict[int, int]:
    return {p: end for batch in adoption.batches for p, (_, end) in batch.ranges.items()}


def _lineage(text: str) -> Lineage:
    return Lineage(tuple(Incarnation(first, writer) for first, writer in json.loads(text)))


def _tables_text(batch: AdoptedBatch) -> str:
    kept = {table: [batch.tables[table], list(names)] for table, names in batch.meant_for.items()}
    return json.dumps({**batch.tables, **kept})


def _adopted(ranges: str, tables: Mapping[str, str | tuple[str, list[str]]], settled: bool) -> AdoptedBatch:
    refused = {table: kept if isinstance(kept, str) else kept[0] for table, kept in tables.items()}
    meant_for = {table: kept[1] for table, kept in tables.items() if not isinstance(kept, str)}
    return AdoptedBatch(ranges_from_text(ranges), refused, settled, meant_for)
