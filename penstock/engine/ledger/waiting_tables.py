"""Tables that were unavailable when their batch was committed: what they wait for, and how that is settled.

The batch's other rows are counted, and the route is past its offsets. The log keeps everything from the first record
that a table waits for, so that its rows can be staged again. A table gets the parts that it waits for in the order of
their batches, and nothing of a newer batch before all of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from penstock.destinations.contract import Batch
from penstock.engine.delivery.batch_pieces import joined
from penstock.engine.ledger.accounts import LOADED_FOR_OTHERS, DeferredPart, WaitingPart, WaitingTable
from penstock.engine.ledger.database import put_row
from penstock.engine.ledger.postponed_items import PostponedItems
from penstock.engine.ledger.range_text import ranges_from_text, ranges_to_text, stretches_from_text, stretches_to_text
from penstock.engine.ledger.route_offsets import RouteOffsets
from penstock.redaction import redacted


class WaitingTables(RouteOffsets, PostponedItems):
    def waiting_tables(self, route: str) -> dict[str, WaitingTable]:
        """The tables of a route that wait, and what for."""
        with self.reading() as connection:
            return self._waiting_tables(connection, route)

    def waiting_partitions(self, route: str) -> set[int]:
        """The partitions of the records that tables of the route wait for."""
        partitions = sa.select(self._t.waiting_offsets.c.partition).filter_by(route=route).distinct()
        return {row.partition for row in self.rows(partitions)}

    def held(self, route: str) -> dict[int, int]:
        """The lowest offset that steps of the route hold, by partition."""
        with self.reading() as connection:
            return self._held(connection, route)

    def waiting_route_names(self, route: str) -> list[str]:
        """Earlier names of the route under which its tables are to get some of what they wait for."""
        w = self._t.waiting.c
        names = sa.select(w.delivered_as).where(w.route == route, w.delivered_as != route).distinct()
        return sorted(row.delivered_as for row in self.rows(names))

    def waiting_ranges(self, route: str) -> list[dict[int, tuple[int, int]]]:
        """The offset ranges of every part that a table of the route waits for."""
        with self.reading() as connection:
            return list(self._waiting_ranges(connection, route).values())

    def next_waiting_part(self, route: str, table: str) -> WaitingPart | None:
        """The oldest part that a table waits for."""
        w = self._t.waiting
        query = sa.select(w).filter_by(route=route, target=table).order_by(w.c.number).limit(1)
        with self.reading() as connection:
            row = connection.execute(query).first()
        return None if row is None else self._part(row)

    def waiting_parts(self, route: str) -> list[WaitingPart]:
        """All parts that tables of a route wait for, oldest first."""
        w = self._t.waiting
        return [
            self._part(row) for row in self.rows(sa.select(w).filter_by(route=route).order_by(w.c.number, w.c.target))
        ]

    def _part(self, row: sa.Row[Any]) -> WaitingPart:
        return WaitingPart(
            row.route,
            Batch(self.scope, row.delivered_as, row.number, ranges_from_text(row.ranges)),
            row.target,
            row.rows,
            row.since,
            row.attempts,
            row.reason,
            stretches_from_text(row.passed_over),
            stretches_from_text(row.acknowledged),
        )

    def tables_of(self, part: WaitingPart) -> set[str] | None:
        """The tables that the batch of a part was for. ``None`` if not known: the batch is no longer listed, or a table
        has rows of others."""
        w, d, b = self._t.waiting, self._t.deliveries, self._t.batches
        this = {"route": part.route, "number": part.batch.number}
        with self.reading() as connection:
            delivered = {row.target: row.status for row in connection.execute(sa.select(d).filter_by(**this))}
            waiting = connection.execute(sa.select(w.c.target).filter_by(**this)).scalars().all()
            listed = connection.execute(sa.select(b.c.number).filter_by(**this)).first() is not None
        return {*delivered, *waiting} if listed and LOADED_FOR_OTHERS not in delivered.values() else None

    def note_attempt(self, part: WaitingPart, reason: str) -> None:
        """Note that a table was tried and is still unavailable."""
        w = self._t.waiting
        this = {"route": part.route, "number": part.batch.number, "target": part.table}
        with self.writing() as connection:
            tried = sa.update(w).filter_by(**this).values(attempts=w.c.attempts + 1, reason=redacted(reason))
            connection.execute(tried)

    def _acknowledge_waiting(
        self, connection: sa.Connection, route: str, partition: int, stretch: tuple[int, int]
    ) -> int:
        """Acknowledge records that tables wait for. Returns how many parts had some of them."""
        w = self._t.waiting
        touched = 0
        for (number, table), ranges in self._waiting_ranges(connection, route).items():
            first, end = ranges.get(partition, (0, 0))
            start, stop = max(first, stretch[0]), min(end, stretch[1])
            if start >= stop:
                continue
            this = {"route": route, "number": number, "target": table}
            known = stretches_from_text(connection.execute(sa.select(w.c.acknowledged).filter_by(**this)).scalar_one())
            known[partition] = joined([*known.get(partition, ()), (start, stop)])
            connection.execute(sa.update(w).filter_by(**this).values(acknowledged=stretches_to_text(known)))
            touched += 1
        return touched

    def _waiting_tables(self, connection: sa.Connection, route: str) -> dict[str, WaitingTable]:
        w = self._t.waiting
        sums = (
            sa.select(
                w.c.target, sa.func.sum(w.c["rows"]), sa.func.count(), sa.func.min(w.c.number), sa.func.min(w.c.since)
            )
            .where(w.c.route == route)
            .group_by(w.c.target)
        )
        found = {}
        for table, rows, batches, first, since in connection.execute(sums).all():
            last_try = sa.select(w.c.attempts, w.c.reason).filter_by(route=route, number=first, target=table)
            attempts, reason = connection.execute(last_try).one()
            found[table] = WaitingTable(int(rows), batches, first, since, attempts, redacted(reason))
        return found

    def _insert_waiting(self, connection: sa.Connection, batch: Batch, deferred: Sequence[DeferredPart]) -> None:
        w, o = self._t.waiting, self._t.waiting_offsets
        # Acknowledged while the batch was tried: too late for the tables that have their rows, not for these.
        done = self._acknowledged_in(connection, batch.route, batch.ranges) if deferred else {}
        for part in deferred:
            this = {"route": batch.route, "number": batch.number, "target": part.table}
            about = {
                "delivered_as": batch.route, "ranges": ranges_to_text(batch.ranges), "rows": part.rows,
                "passed_over": stretches_to_text(part.passed_over), "acknowledged": stretches_to_text(done),
                "since": time.time(), "attempts": 0, "reason": redacted(part.reason),
            }  # fmt: skip
            connection.execute(sa.insert(w).values(**this, **about))
            for partition, (first, end) in batch.ranges.items():
                connection.execute(sa.insert(o).values(**this, partition=partition, first=first, end=end))

    def _acknowledged_in(
        self, connection: sa.Connection, route: str, ranges: Mapping[int, tuple[int, int]]
    ) -> dict[int, list[tuple[int, int]]]:
        rows = connection.execute(sa.select(self._t.acknowledged).filter_by(route=route).order_by("first")).all()
        found: dict[int, list[tuple[int, int]]] = {}
        for row in rows:
            start, end = ranges.get(row.partition, (0, 0))
            if row.first < end and start < row.end:
                found.setdefault(row.partition, []).append((max(row.first, start), min(row.end, end)))
        return found

    def _waits_from(self, connection: sa.Connection, route: str, partition: int, end: int) -> int:
        """The lowest offset of a partition that something waits at; ``end`` if there is none before it. A retry that
        was begun may be ahead of a route that was rewound."""
        here = {"route": route, "partition": partition}
        o = self._t.waiting_offsets
        firsts = (
            sa.select(sa.func.min(o.c.first)).filter_by(**here),
            sa.select(self._t.held.c.first).filter_by(**here),
        )
        found = [connection.execute(first).scalar() for first in firsts]
        found.append(self._postponed_from(connection, route, partition))
        lowest: int = min([end, *(first for first in found if first is not None)])
        return lowest

    def _update_hold(self, connection: sa.Connection, route: str, partition: int) -> None:
        """Keep of a partition's log what is needed now."""
        offsets = self._t.offsets
        here = {"route": route, "partition": partition}
        committed: int = connection.execute(sa.select(offsets.c.committed).filter_by(**here)).scalar_one()
        hold = self._waits_from(connection, route, partition, committed)
        connection.execute(sa.update(offsets).filter_by(**here).values(hold=hold))

    def _held(self, connection: sa.Connection, route: str) -> dict[int, int]:
        """The lowest offset that steps hold, by partition."""
        rows = connection.execute(sa.select(self._t.held).filter_by(route=route))
        return {row.partition: row.first for row in rows}

    def _set_held(self, connection: sa.Connection, route: str, holds: Mapping[int, int | None]) -> None:
        for partition, first in holds.items():
            here = {"route": route, "partition": partition}
            if first is None:
                connection.execute(sa.delete(self._t.held).filter_by(**here))
            else:
                put_row(connection, self._t.held, here, {"first": first}, {"first": first})

    def _waiting_ranges(
        self, connection: sa.Connection, route: str
    ) -> dict[tuple[int, str], dict[int, tuple[int, int]]]:
        """The offset ranges of waiting parts, by batch number and table."""
        o = self._t.waiting_offsets
        found: dict[tuple[int, str], dict[int, tuple[int, int]]] = {}
        for row in connection.execute(sa.select(o).filter_by(route=route).order_by(o.c.number)):
            found.setdefault((row.number, row.target), {})[row.partition] = (row.first, row.end)
        return found

    def _delete_waiting(self, connection: sa.Connection, route: str, number: int, table: str) -> int:
        """Delete a waiting part, and release the log that was held for it. Returns its rows: 0 if it was not waiting
        any more."""
        w, o = self._t.waiting, self._t.waiting_offsets
        this = {"route": route, "number": number, "target": table}
        rows: int | None = connection.execute(sa.select(w.c["rows"]).filter_by(**this)).scalar()
        if rows is None:
            return 0
        partitions = list(connection.execute(sa.select(o.c.partition).filter_by(**this)).scalars())
        connection.execute(sa.delete(w).filter_by(**this))
        connection.execute(sa.delete(o).filter_by(**this))
        for partition in partitions:
            self._update_hold(connection, route, partition)
        return rows
