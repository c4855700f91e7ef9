"""Where a route's records came from, and what the route adopted from another history.

A route's lineage says which writers assigned the offsets that it delivered: it reveals a log that was restored, and the
first offset that was given to another record. A route adopts ranges of the log that the destination already has: they
are settled, in order, before anything else, and counted without being written again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import sqlalchemy as sa

from penstock.engine.ledger.accounts import ADOPTED, Act, Operator, RouteState
from penstock.engine.ledger.interventions import Interventions, Stretches
from penstock.engine.ledger.ledger_tables import Tables
from penstock.engine.ledger.range_text import ranges_from_text, ranges_to_text
from penstock.errors import LedgerError
from penstock.log.lineage import Incarnation, Lineage


@dataclass(frozen=True)
class AdoptedBatch:
    """A range of the log that was delivered under another ledger, another name or a copy of this ledger."""

    ranges: Mapping[int, tuple[int, int]]
    tables: Mapping[str, str] = field(default_factory=dict)
    """Tables that have their rows, each with the rows that it refused, as text."""
    settled: bool = True
    """Whether it was completely settled there. If it was under way, tables that are not named get their rows now."""
    meant_for: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """For tables that have rows of others: those others."""
    wanting: Collection[str] = ()
    """Tables that still waited for their part when the rest was settled: they get it now."""

    def staged_as(self, table: str) -> Sequence[str]:
        """The tables under whose names a table's rows are staged."""
        return self.meant_for.get(table) or (table,)


@dataclass(frozen=True)
class Adoption:
    """What a route adopts: the ranges in order, where it starts, and the highest batch number in use."""

    batches: Sequence[AdoptedBatch]
    last_number: int
    starts: Mapping[int, int] = field(default_factory=dict)
    """Partitions in which the route goes back first: this log does not have what it delivered after these offsets."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """Tables that waited at the destination's newest batch, each with the number of the first batch that it lacks."""
    newest: int = 0
    """The number of that batch, if it is one of the route's own."""
    replay_doubts: Mapping[int, int] = field(default_factory=dict)
    """Per partition, the offset before which records that fail may be at the destination as replayed ones."""


class RouteHistories(Interventions):
    def lineages(self, route: str) -> dict[int, Lineage]:
        """Per partition, the writers of what the route has begun, as far back as they were noted."""
        return {
            row.partition: Lineage(tuple(Incarnation(*entry) for entry in json.loads(row.entries)))
            for row in self.rows(sa.select(self._t.lineages).filter_by(route=route))
        }

    def last_number(self, route: str) -> int:
        """The highest batch number that this ledger gave to the route."""
        b, c = self._t.batches.c, self._t.courses.c
        with self.reading() as connection:
            listed = connection.execute(sa.select(sa.func.max(b.number)).where(b.route == route)).scalar()
            abandoned = connection.execute(sa.select(c.last_number).where(c.route == route)).scalar()
        return max(listed or 0, abandoned or 0)

    def has_history(self, route: str) -> bool:
        """Whether the route has begun a batch in this ledger, or an operator has set where it starts."""
        t = self._t
        with self.reading() as connection:
            known = connection.execute(sa.select(t.accepted).filter_by(route=route)).first()
            given_up = connection.execute(sa.select(t.courses.c.last_number).filter_by(route=route)).scalar()
            done = sa.select(t.batches).filter_by(route=route).where(t.batches.c.committed_at.is_not(None))
            return known is not None or bool(given_up) or connection.execute(done.limit(1)).first() is not None

    def places(self) -> dict[str, str]:
        """The path that each route writes to, for routes that write to disk."""
        return {row.route: row.place for row in self.rows(sa.select(self._t.places))}

    def note_place(self, route: str, place: str) -> None:
        if self.places().get(route, "") != place:
            with self.writing() as connection:
                connection.execute(sa.delete(self._t.places).filter_by(route=route))
                connection.execute(sa.insert(self._t.places).values(route=route, place=place))

    def accepted_number(self, route: str) -> int:
        """Up to which batch number an operator has decided about what the destination has of the route."""
        with self.reading() as connection:
            return connection.execute(sa.select(self._t.accepted.c.number).filter_by(route=route)).scalar() or 0

    def accepted_others(self, route: str) -> dict[tuple[str, str], int]:
        """The same for other ledgers' routes: by scope and name, what the destination had of them at the decision."""
        a = self._t.accepted
        found = self.rows(sa.select(a).where(a.c.route.startswith(f"{route} ", autoescape=True)))
        places = [(row.route.split(" ", 2), row.number) for row in found]
        return {(place[1], place[2]): number for place, number in places if len(place) == 3}

    def accept_others(
        self,
        route: str,
        numbers: Mapping[tuple[str, str], int],
        own: Collection[tuple[str, str]],
        instead: bool = False,
    ) -> None:
        """Accept what others have delivered, by scope and name. ``own`` are those that the route goes on from.
        ``instead``: nothing else that was accepted before is expected any more. What was adopted stays adopted."""
        a = self._t.accepted
        of_route = a.c.route.startswith(f"{route} ", autoescape=True)
        with self.writing() as connection:
            known = {row.route: Act(row.act) for row in connection.execute(sa.select(a).where(of_route))}
            if instead:
                connection.execute(sa.update(a).where(of_route).values(number=0))
            for (scope, other), number in numbers.items():
                key = f"{route} {scope} {other}"
                is_own = (scope, other) in own or known.get(key) is Act.ADOPT
                self._accept(connection, key, Act.ADOPT if is_own else Act.ACK, number)

    def adopted_histories(self, route: str) -> list[tuple[str, str]]:
        """The ledgers and names under which what the route goes on from was delivered."""
        a = self._t.accepted.c
        adopted = a.route.startswith(f"{route} ", autoescape=True) & (a.act == Act.ADOPT.value)
        found = [row.route.split(" ", 2) for row in self.rows(sa.select(a.route).where(adopted))]
        return [(parts[1], parts[2]) for parts in found if len(parts) == 3]

    def accept(self, route: str, number: int, operator: Operator, act: Act, copies: Stretches) -> None:
        """Note that an operator has decided about earlier deliveries, up to a batch number: the route does not ask
        again, and new batches get higher numbers. ``copies`` of what it reads are acknowledged."""
        courses = self._t.courses
        with self.writing() as connection:
            course = self._require_idle(connection, route, engine_runs=False)
            highest = max(course.last_number, number)
            connection.execute(sa.update(courses).filter_by(route=route).values(last_number=highest))
            self._accept(connection, route, act, number)
            self._forget_marks(connection, route)
            self._pass_over(connection, route, copies)
            self._record(connection, act, route, operator, {})
            self._set_state(connection, route, RouteState.STOPPED)

    def start_at(self, route: str, ends: Mapping[int, int], number: int, operator: Operator) -> None:
        """Start a route without a history here at these offsets, whatever was delivered before."""
        offsets = self._t.offsets
        with self.writing() as connection:
            self._require_idle(connection, route, engine_runs=False)
            for partition, end in ends.items():
                here = sa.update(offsets).filter_by(route=route, partition=partition)
                connection.execute(here.values(committed=end, hold=end))
            self._abandon(connection, route)
            highest = max(self._lock_course(connection, route).last_number, number)
            connection.execute(sa.update(self._t.courses).filter_by(route=route).values(last_number=highest))
            self._accept(connection, route, Act.START, number)
            self._record(connection, Act.START, route, operator, {p: (0, end) for p, end in ends.items()})

    def adopt(self, route: str, adoption: Adoption, operator: Operator, engine_runs: bool = False) -> None:
        """Adopt what was delivered before. A batch under way is abandoned: if the destination has some of it, the
        adoption says so."""
        t = self._t
        with self.writing() as connection:
            self._require_idle(connection, route, engine_runs)
            positions = self._standing(connection, route).positions
            self._abandon(connection, route)
            course = self._lock_course(connection, route)
            self._release_delivered_parts(connection, route, adoption)
            for partition, start in adoption.starts.items():
                hold = self._waits_from(connection, route, partition, start)
                connection.execute(
                    sa.update(t.offsets).filter_by(route=route, partition=partition).values(committed=start, hold=hold)
                )
                ahead = sa.delete(t.acknowledged).filter_by(route=route, partition=partition)
                connection.execute(ahead.where(t.acknowledged.c.end > start))
                self._note_lineage(connection, route, partition, Lineage(), start)
            highest = max(course.last_number, adoption.last_number, self._highest(connection, route))
            moved = {"generation": course.generation + 1, "last_number": highest}
            connection.execute(sa.update(t.courses).filter_by(route=route).values(moved))
            connection.execute(sa.delete(t.halts).filter_by(route=route))
            connection.execute(sa.delete(t.adopted).filter_by(route=route))
            for place, batch in enumerate(adoption.batches):
                content = {"ranges": ranges_to_text(batch.ranges), "tables": _tables_text(batch)}
                flags = {"settled": int(batch.settled), "wanting": json.dumps(sorted(batch.wanting))}
                connection.execute(sa.insert(t.adopted).values(route=route, place=place, **flags, **content))
            self._accept(connection, route, Act.ADOPT, adoption.last_number)
            self._forget_marks(connection, route)
            reached = {p: end for batch in adoption.batches for p, (_, end) in batch.ranges.items()}
            places = {p: (position.committed, reached[p]) for p, position in positions.items() if p in reached}
            for p, end in adoption.replay_doubts.items():
                connection.execute(sa.delete(t.replay_doubts).filter_by(route=route, partition=p))
                connection.execute(sa.insert(t.replay_doubts).values(route=route, partition=p, end=end))
            self._record(connection, Act.ADOPT, route, operator, places)
            self._set_state(connection, route, RouteState.STARTING if engine_runs else RouteState.STOPPED)

    def _release_delivered_parts(self, connection: sa.Connection, route: str, adoption: Adoption) -> None:
        """Release the waiting parts that a newer copy of this ledger has delivered, and those whose records this log
        does not have."""
        gone = []
        for (number, table), ranges in self._waiting_ranges(connection, route).items():
            forked = any(p in adoption.starts and end > adoption.starts[p] for p, (_, end) in ranges.items())
            waits_there = number >= adoption.waiting.get(table, adoption.newest)
            if forked or not waits_there:
                gone.append((number, table))
        self._release_parts(connection, route, gone, ADOPTED)

    def adopted_batches(self, route: str) -> list[AdoptedBatch]:
        """The adopted batches that are still to be settled, in order."""
        a = self._t.adopted
        return [
            replace(_adopted(row.ranges, json.loads(row.tables), bool(row.settled)), wanting=json.loads(row.wanting))
            for row in self.rows(sa.select(a).filter_by(route=route).order_by(a.c.place))
        ]

    def finish_adoption(self, route: str) -> None:
        with self.writing() as connection:
            connection.execute(sa.delete(self._t.adopted).filter_by(route=route))

    def rename_route(self, old: str, new: str, operator: Operator) -> None:
        """Give a route another name, with everything that the ledger knows of it."""
        with self.writing() as connection:
            self._require_idle(connection, old, engine_runs=False)
            self._require_idle(connection, new, engine_runs=False)
            if self._highest(connection, new):
                raise LedgerError(
                    "PEN-LGR-014",
                    f"route '{new}' has delivered by itself: it cannot take over where '{old}' stands.",
                    f"Keep it as it is, and let go of the other: penstock offset drop {old}",
                )
            for table in _by_route(self._t):
                connection.execute(sa.delete(table).where(table.c.route == new))
                connection.execute(sa.update(table).where(table.c.route == old).values(route=new))
            self._rename_accepted(connection, old, new)
            self._accept(connection, new, Act.ADOPT, 0)
            # The destination has them under the former name.
            self._forget_marks(connection, new)
            self._record(connection, Act.ADOPT, new, operator, {})

    def _rename_accepted(self, connection: sa.Connection, old: str, new: str) -> None:
        a = self._t.accepted
        for row in connection.execute(sa.select(a).where(a.c.route.startswith(f"{old} ", autoescape=True))).all():
            connection.execute(sa.delete(a).filter_by(route=row.route))
            self._accept(connection, f"{new}{row.route.removeprefix(old)}", Act(row.act), row.number)

    def drop_route(self, route: str) -> None:
        """Forget a route: its offsets, counts and batches."""
        with self.writing() as connection:
            self._require_idle(connection, route, engine_runs=False)
            for table in _by_route(self._t):
                connection.execute(sa.delete(table).where(table.c.route == route))
            accepted = self._t.accepted
            connection.execute(sa.delete(accepted).where(accepted.c.route.startswith(f"{route} ", autoescape=True)))
            self._accept(connection, f"{DROPPED}{route}", Act.DROP, 0)

    def dropped_routes(self) -> set[str]:
        """The routes that an operator has dropped: what they left at a destination is ignored."""
        a = self._t.accepted.c
        return {row.route.removeprefix(DROPPED) for row in self.rows(sa.select(a.route).where(a.act == Act.DROP.value))}

    def _accept(self, connection: sa.Connection, route: str, act: Act, number: int) -> None:
        connection.execute(sa.delete(self._t.accepted).filter_by(route=route))
        values = {"route": route, "act": act.value, "number": number, "at": time.time()}
        connection.execute(sa.insert(self._t.accepted).values(values))

    def _highest(self, connection: sa.Connection, route: str) -> int:
        b = self._t.batches.c
        return connection.execute(sa.select(sa.func.max(b.number)).where(b.route == route)).scalar() or 0


DROPPED = "dropped "
"""Route names have no blanks."""


def _by_route(t: Tables) -> list[sa.Table]:
    return [table for table in t.metadata.tables.values() if "route" in table.c]


def _tables_text(batch: AdoptedBatch) -> str:
    kept = {table: [batch.tables[table], list(names)] for table, names in batch.meant_for.items()}
    return json.dumps({**batch.tables, **kept})


def _adopted(ranges: str, tables: Mapping[str, str | tuple[str, list[str]]], settled: bool) -> AdoptedBatch:
    refused = {table: kept if isinstance(kept, str) else kept[0] for table, kept in tables.items()}
    meant_for = {table: kept[1] for table, kept in tables.items() if not isinstance(kept, str)}
    return AdoptedBatch(ranges_from_text(ranges), refused, settled, meant_for)
