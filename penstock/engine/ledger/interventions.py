"""Offset control in the ledger: operators acknowledge records, rewind a route, resume a halted one.

Each act is one transaction with its entry in the log of interventions. It is refused while an engine works on the
route: a running engine allows it only where the route waits for the operator.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import sqlalchemy as sa

from penstock.destinations.contract import Superseded
from penstock.engine.ledger.accounts import (
    ACKNOWLEDGED,
    FORGOTTEN,
    LOADED_FOR_OTHERS,
    PASSING_OVER,
    REWOUND,
    Act,
    Intervention,
    MarkedTable,
    Operator,
    Position,
    RouteState,
    Settlement,
    Standing,
)
from penstock.engine.ledger.batches import LOADED, Batches
from penstock.errors import LedgerError

_NO_END = 2**62

Stretches = Mapping[int, Sequence[tuple[int, int]]]
"""Offsets by partition, each stretch as ``[start, end)``."""


@dataclass(frozen=True)
class Advance:
    """How far a route moves on without delivering: offsets ``[start, end)``, and how many records they hold."""

    start: int
    end: int
    items: int


class Interventions(Batches):
    def acknowledge(
        self,
        route: str,
        partition: int,
        stretch: tuple[int, int],
        operator: Operator,
        advance: Advance | None = None,
        engine_runs: bool = False,
    ) -> bool:
        """Acknowledge the offsets ``[start, end)``. With ``advance`` the route moves past them at once, and a route
        that was halted there resumes; without, it will skip them when it gets there. Returns whether it has moved.

        It does not move at once while an engine works on the route, or while they are in a batch under way, which
        tables may have in part: then they are left out of what is still to be written.
        """
        with self.writing() as connection:
            self._lock_course(connection, route)
            state = self._state(connection, route)
            standing = self._standing(connection, route)
            at_rest = not engine_runs or state == RouteState.HALTED
            begun = standing.pending is not None and partition in standing.pending.ranges
            moves = advance if at_rest and not begun else None
            self._note_acknowledged(connection, route, partition, stretch)
            if moves is not None:
                self._advance_route(connection, route, partition, standing, moves)
            self._record(connection, Act.ACK, route, operator, {partition: stretch})
            halt = standing.halt
            if moves is not None and halt is not None and halt.partition == partition and halt.offset < moves.end:
                self._set_state(connection, route, RouteState.STARTING)
            return moves is not None

    def acknowledge_waiting(self, route: str, partition: int, stretch: tuple[int, int], operator: Operator) -> int:
        """Acknowledge offsets that the route is past: nothing waits for them any more, but a retry that was begun.
        Returns in how many places some of them waited; with none, nothing is noted."""
        with self.writing() as connection:
            self._lock_course(connection, route)
            touched = self._acknowledge_waiting(connection, route, partition, stretch)
            if items := self._leave_out_postponed(connection, route, {partition: stretch}):
                self._move_waiting_to_skipped(connection, route, items, ACKNOWLEDGED)
                self._update_hold(connection, route, partition)
                touched += 1
            if touched:
                self._record(connection, Act.ACK, route, operator, {partition: stretch})
            return touched

    def forget_waiting(self, route: str, groups: Collection[str]) -> int:
        """Give up what waits at the destination under these names, but for a retry that was begun, and what was
        counted of them. Returns how many items waited."""
        with self.writing() as connection:
            self._lock_course(connection, route)
            partitions = self._postponed_partitions(connection, route)
            p, tallies = self._t.postponed.c, self._t.tallies.c
            found = sa.select(p.group, p.about).where(p.route == route, p.group.in_(groups)).distinct()
            named = [Superseded(group, about, FORGOTTEN) for group, about in connection.execute(found)]
            items = sum(self._supersede(connection, route, named).values())
            if items:
                self._move_waiting_to_skipped(connection, route, items, FORGOTTEN)
            for partition in partitions:
                self._update_hold(connection, route, partition)
            gone = sa.and_(tallies.route == route, tallies.subject.in_(groups))
            connection.execute(sa.delete(self._t.tallies).where(gone))
            return items

    def rewind(
        self,
        route: str,
        targets: Mapping[int, int],
        operator: Operator,
        copies: Stretches = MappingProxyType({}),
        has_state: bool = False,
        come_again: Collection[MarkedTable] = (),
    ) -> None:
        """Move the route back to these offsets. ``copies`` of what comes again are acknowledged. If the route
        ``has_state``, which is lost, no batch under way can stay. What of earlier batches will ``come_again``, under
        new numbers, is not expected at the destination any more.

        A batch under way that begins there stays under way, so that tables which have their part of it do not get it
        twice. Refused if such tables may lack records that were acknowledged in it: those could not come again before
        the batch is settled. Any other batch under way is abandoned with its number, so that the destination does not
        take its rows for those that come now. Refused if tables have their part of it and records would come again in
        partitions that were not asked for.

        The checkpoint is dropped, and with it the state of the route's steps: so no partition starts behind the lowest
        offset that a step holds. Acknowledgements ahead of the route in these partitions are void: everything
        from the target on is delivered. Tables no longer wait for parts that come again; they keep waiting for other
        offsets. Refused if only some of a part that a table waits for would come again.
        """
        t = self._t
        with self.writing() as connection:
            course = self._require_idle(connection, route, engine_runs=False)
            standing = self._standing(connection, route)
            held = self._held(connection, route)
            starts = {
                p: min(targets.get(p, position.committed), held.get(p, position.committed))
                for p, position in standing.positions.items()
            }
            self._set_held(connection, route, dict.fromkeys(held))
            self._release_rewound_parts(connection, route, starts)
            self._release_rewound_items(connection, route, starts)
            if not has_state and _goes_on(standing, starts):
                self._refuse_unsettled_acks(connection, standing, targets)
            else:
                self._refuse_duplicates(connection, standing, targets)
                self._abandon(connection, route)
            for partition, start in starts.items():
                hold = self._waits_from(connection, route, partition, start)
                connection.execute(
                    sa.update(t.offsets).filter_by(route=route, partition=partition).values(committed=start, hold=hold)
                )
            connection.execute(sa.update(t.courses).filter_by(route=route).values(generation=course.generation + 1))
            connection.execute(sa.delete(t.halts).filter_by(route=route))
            ahead = t.acknowledged.c
            connection.execute(
                sa.delete(t.acknowledged).where(ahead.route == route, ahead.partition.in_(list(targets)))
            )
            self._pass_over(connection, route, copies)
            if steps_hold := self._held_by_steps(connection, route):
                self._move_waiting_to_skipped(connection, route, steps_hold, REWOUND)
            self._forget_marks_of(connection, route, come_again)
            connection.execute(sa.delete(t.progress).filter_by(route=route, number=0))
            again = {p: (start, standing.positions[p].committed) for p, start in targets.items()}
            self._record(connection, Act.REWIND, route, operator, again)
            self._set_state(connection, route, RouteState.STOPPED)

    def return_to_holds(
        self, route: str, operator: Operator, back_to: Mapping[int, int] = MappingProxyType({})
    ) -> dict[int, int]:
        """Move the route back to the lowest offsets that its steps hold, because their state is gone, and to
        ``back_to``, by partition, where that is lower. Returns the offsets. What was delivered from there on is
        delivered again, and so may be a batch under way."""
        with self.writing() as connection:
            course = self._lock_course(connection, route)
            positions = self._standing(connection, route).positions
            held = self._held(connection, route)
            starts = {p: min(at, held.get(p, at)) for p, at in {**held, **back_to}.items()}
            self._abandon(connection, route)
            self._set_held(connection, route, dict.fromkeys(held))
            if back_to:
                elsewhere = {p: position.committed for p, position in positions.items()}
                self._release_rewound_parts(connection, route, {**elsewhere, **starts})
            self._release_rewound_items(connection, route, starts)
            for partition, start in starts.items():
                moved = sa.update(self._t.offsets).filter_by(route=route, partition=partition)
                hold = self._waits_from(connection, route, partition, start)
                connection.execute(moved.values(committed=start, hold=hold))
            generation = course.generation + 1
            connection.execute(sa.update(self._t.courses).filter_by(route=route).values(generation=generation))
            if steps_hold := self._held_by_steps(connection, route):
                self._move_waiting_to_skipped(connection, route, steps_hold, REWOUND)
            again = {p: (start, positions[p].committed) for p, start in starts.items()}
            self._record(connection, Act.REWIND, route, operator, again)
            return starts

    def resume(self, route: str, operator: Operator) -> None:
        """Let a halted route try its record again. A running engine notices and starts the route."""
        with self.writing() as connection:
            self._require_idle(connection, route, engine_runs=True)
            halt = self._standing(connection, route).halt
            places = {} if halt is None else {halt.partition: (halt.offset, halt.offset + 1)}
            self._record(connection, Act.RESUME, route, operator, places)
            self._set_state(connection, route, RouteState.STARTING)

    def require_idle(self, route: str, engine_runs: bool) -> None:
        """Raise ``LedgerError`` if a running engine may be working on the route."""
        with self.writing() as connection:
            self._require_idle(connection, route, engine_runs)

    def interventions(self, route: str, last: int = 20) -> list[Intervention]:
        """The newest acts, newest first."""
        i = self._t.interventions
        query = sa.select(i).where(i.c.route == route).order_by(i.c.number.desc()).limit(last)
        return [
            Intervention(Act(row.act), row.at, row.who, row.reason, row.partition, row.first, row.end)
            for row in self.rows(query)
        ]

    def _require_idle(self, connection: sa.Connection, route: str, engine_runs: bool) -> sa.Row[tuple[object, ...]]:
        """Lock the route's course; raises while an engine may be working on the route."""
        course = self._lock_course(connection, route)
        state = self._state(connection, route)
        if engine_runs and state != RouteState.HALTED:
            raise LedgerError(
                "PEN-LGR-013",
                f"route '{route}' is not halted (it is {state or 'new'}), and the engine runs.",
                "Stop the pipeline first, or wait until the route halts.",
            )
        return course

    def _state(self, connection: sa.Connection, route: str) -> str | None:
        return connection.execute(sa.select(self._t.states.c.state).filter_by(route=route).with_for_update()).scalar()

    def _refuse_duplicates(self, connection: sa.Connection, standing: Standing, targets: Mapping[int, int]) -> None:
        pending = standing.pending
        unasked = [] if pending is None else sorted(pending.ranges.keys() - targets.keys())
        if pending is None or not unasked:
            return
        d = self._t.deliveries
        there = sa.select(d.c.target).filter_by(route=pending.route, number=pending.number)
        there = there.where(d.c.status.in_((LOADED, LOADED_FOR_OTHERS)))
        tables = sorted(connection.execute(there).scalars())
        if tables:
            raise LedgerError(
                "PEN-LGR-015",
                f"batch {pending.number} is in progress and tables {', '.join(tables)} already have their part."
                f" Rewinding only some partitions would deliver partition {', '.join(map(str, unasked))} twice.",
                "Start the pipeline so that it finishes the batch, or rewind all partitions.",
            )

    def _refuse_unsettled_acks(self, connection: sa.Connection, standing: Standing, targets: Mapping[int, int]) -> None:
        pending = standing.pending
        if pending is None or not any(
            first < pending.ranges[p][1] for p in targets.keys() & pending.ranges.keys()
            for first, _ in standing.acknowledged.get(p, ())
        ):  # fmt: skip
            return
        d = self._t.deliveries
        note = sa.select(d.c.number).filter_by(route=pending.route, number=pending.number, status=PASSING_OVER)
        if connection.execute(note).first() is not None:
            raise LedgerError(
                "PEN-LGR-016",
                f"batch {pending.number} is in progress, and some tables may already be written without its"
                " acknowledged records. A rewind now would leave those out for good.",
                "Start the pipeline so that it finishes the batch, then rewind the route.",
            )

    def _pass_over(self, connection: sa.Connection, route: str, copies: Stretches) -> None:
        for partition, stretches in copies.items():
            for stretch in stretches:
                self._note_acknowledged(connection, route, partition, stretch)

    def _note_acknowledged(
        self, connection: sa.Connection, route: str, partition: int, stretch: tuple[int, int]
    ) -> None:
        """Save what was acknowledged ahead of the route, merged with the ranges that it touches."""
        a = self._t.acknowledged
        start, end = stretch
        touching = sa.and_(a.c.route == route, a.c.partition == partition, a.c.first <= end, a.c.end >= start)
        for row in connection.execute(sa.select(a).where(touching)).all():
            start, end = min(start, row.first), max(end, row.end)
        connection.execute(sa.delete(a).where(touching))
        connection.execute(sa.insert(a).values(route=route, partition=partition, first=start, end=end))

    def _advance_route(
        self, connection: sa.Connection, route: str, partition: int, standing: Standing, advance: Advance
    ) -> None:
        committed = standing.positions.get(partition, Position(0, 0)).committed
        if committed != advance.start:
            raise LedgerError(
                "PEN-LGR-012",
                f"route '{route}' has moved from {advance.start} to {committed}.",
                "Look again, then retry.",
            )
        course = self._lock_course(connection, route)
        batch = self._insert_batch(connection, route, {partition: (advance.start, advance.end)}, course.last_number)
        skipped = {ACKNOWLEDGED: advance.items} if advance.items else {}
        self._commit(connection, batch, Settlement(advance.items, 0, skipped))

    def held_items(self, route: str) -> int:
        """How many items the route's steps hold back."""
        with self.reading() as connection:
            return self._held_by_steps(connection, route)

    def _held_by_steps(self, connection: sa.Connection, route: str) -> int:
        """How many items wait in steps, not for a table or the destination."""
        c = self._t.totals.c
        waiting = connection.execute(sa.select(c.waiting).where(c.route == route)).scalar() or 0
        tables = sum(table.rows for table in self._waiting_tables(connection, route).values())
        return waiting - tables - self._postponed_rows(connection, route)

    def _release_rewound_parts(self, connection: sa.Connection, route: str, starts: Mapping[int, int]) -> None:
        """Release the parts that tables wait for and that come again from ``starts`` on: they are counted again
        then."""
        again = []
        for (number, table), ranges in self._waiting_ranges(connection, route).items():
            if all(starts[p] <= first for p, (first, _) in ranges.items()):
                again.append((number, table))
            elif any(starts[p] < end for p, (_, end) in ranges.items()):
                places = ", ".join(f"offsets {first}..{end - 1} of partition {p}" for p, (first, end) in ranges.items())
                raise LedgerError(
                    "PEN-LGR-018",
                    f"table '{table}' is waiting for its part of batch {number} ({places}), and this rewind covers only"
                    " some of it.",
                    "Fix the table and let the pipeline load it, or rewind to the first of these offsets in each of"
                    " these partitions, or to after the last of them.",
                )
        self._release_parts(connection, route, again, REWOUND)

    def _release_rewound_items(self, connection: sa.Connection, route: str, starts: Mapping[int, int]) -> None:
        """The same for what waits at the destination."""
        again = {p: (start, _NO_END) for p, start in starts.items()}
        if rows := self._leave_out_postponed(connection, route, again):
            self._move_waiting_to_skipped(connection, route, rows, REWOUND)

    def _release_parts(
        self, connection: sa.Connection, route: str, parts: Sequence[tuple[int, str]], label: str
    ) -> None:
        rows = sum(self._delete_waiting(connection, route, number, table) for number, table in parts)
        if rows:
            self._move_waiting_to_skipped(connection, route, rows, label)

    def _record(
        self, connection: sa.Connection, act: Act, route: str, operator: Operator, places: Mapping[int, tuple[int, int]]
    ) -> None:
        about = {"at": time.time(), "route": route, "act": act.value, "who": operator.name, "reason": operator.reason}
        for partition, (first, end) in places.items():
            connection.execute(
                sa.insert(self._t.interventions).values(**about, partition=partition, first=first, end=end)
            )


def _goes_on(standing: Standing, starts: Mapping[int, int]) -> bool:
    """Whether the route's next batch from there is exactly the batch under way."""
    pending = standing.pending
    return pending is not None and all(starts.get(p) == start for p, (start, _) in pending.ranges.items())
