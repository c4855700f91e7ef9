"""Items that wait at the destination though their batch is committed, and how that is settled.

They wait in groups. A retry takes some groups and has a number of its own, from the same row as batches, so that the
destination can tell a second attempt from a new one; it has no range. Which groups it takes is fixed until it is
settled. What it leaves waiting keeps its place before what came later.

When a group is due is kept as a time of day, so a restart does not make it wait longer. A clock that is set can make a
try early, or late by less than the group's own delay.

Thousands of groups may come and go with a batch: all that touches many of them is a few statements.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import sqlalchemy as sa

from penstock.destinations.contract import Superseded
from penstock.engine.ledger.accounts import Postponed, PostponedGroup, QueuedGroup
from penstock.engine.ledger.database import Database
from penstock.engine.ledger.packed_places import pack_places, unpack_places
from penstock.redaction import redacted

MOST_VALUES = 5_000
"""How many values one statement names; databases have a limit."""

AT_ONCE = 0.0
"""The time of day at which a group is due that need not wait."""


_Value = TypeVar("_Value", int, str)


@dataclass(frozen=True)
class _Kept:
    """What stays of groups that are taken out when some of their items wait again."""

    items: int
    queued_as: int | None = None
    """The place in the queue of the first of them."""
    since: Mapping[str, float] = field(default_factory=dict)
    attempts: Mapping[str, int] = field(default_factory=dict)
    """By the name of the group."""

    def tried(self) -> _Kept:
        """After one more attempt."""
        return replace(self, attempts={name: attempts + 1 for name, attempts in self.attempts.items()})


NOTHING_KEPT = _Kept(0)


class PostponedItems(Database):
    def postponed(self, route: str) -> list[PostponedGroup]:
        """What waits at the destination, the oldest group first."""
        query = sa.select(self._t.postponed).filter_by(route=route).order_by(*self._queue)
        return [_group(row) for row in self.rows(query)]

    def retry_groups(self, route: str, number: int) -> list[PostponedGroup]:
        """What a retry that was begun has, the oldest group first."""
        query = sa.select(self._t.postponed).filter_by(route=route, tried_as=number).order_by(*self._queue)
        return [_group(row) for row in self.rows(query)]

    def postponed_queue(self, route: str) -> list[QueuedGroup]:
        """The same as ``postponed``, without what only a retry needs to know."""
        p = self._t.postponed.c
        query = sa.select(p.number, p.group, p["rows"], p.tried_as, self._is_due().label("due"))
        found = self.rows(query.where(p.route == route).order_by(*self._queue))
        return [QueuedGroup(row.number, row.group, row.rows, row.tried_as, bool(row.due)) for row in found]

    def postponed_items(self, route: str) -> int:
        """How many items wait at the destination."""
        with self.reading() as connection:
            return self._postponed_rows(connection, route)

    def postponed_among(self, route: str, names: Collection[str]) -> set[str]:
        """Those of these groups of which something waits."""
        p = self._t.postponed.c
        query = sa.select(p.group).distinct().where(p.route == route)
        return {row.group for some in _chunks(sorted(names)) for row in self.rows(query.where(p.group.in_(some)))}

    def is_postponed_due(self, route: str) -> bool:
        """Whether some of what waits is due, or a retry was begun."""
        p = self._t.postponed.c
        return bool(self.rows(sa.select(p.number).where(p.route == route, self._is_due()).limit(1)))

    def postponed_groups(self, route: str, but: int | None = None) -> dict[str, list[str]]:
        """What the destination wants to know of each group that waits, by their names, the oldest first; without those
        of the retry ``but``."""
        p = self._t.postponed.c
        query = sa.select(p.group, p.about).where(p.route == route).order_by(*self._queue)
        found: dict[str, list[str]] = {}
        for row in self.rows(query if but is None else query.where(p.tried_as.is_distinct_from(but))):
            found.setdefault(row.group, []).append(row.about)
        return found

    def retry_digest(self, route: str, number: int) -> int | None:
        """What a retry that was begun had staged; ``None`` if that is not known."""
        p = self._t.postponed
        with self.reading() as connection:
            found = connection.execute(sa.select(p.c.digest).filter_by(route=route, tried_as=number)).scalar()
        return None if found is None else int(found)

    def set_retry_digest(self, route: str, number: int, digest: int) -> None:
        with self.writing() as connection:
            here = sa.update(self._t.postponed).filter_by(route=route, tried_as=number)
            connection.execute(here.values(digest=str(digest)))

    def begin_retry(self, route: str, ids: Sequence[int]) -> int:
        """Fix that these groups are tried together, and return the number of the retry."""
        with self.writing() as connection:
            return self._begin_retry(connection, route, ids)

    def note_retry(self, route: str, number: int, reason: str) -> None:
        """Note that a retry was not taken."""
        p = self._t.postponed
        tried = {"attempts": p.c.attempts + 1, "reason": redacted(reason)}
        with self.writing() as connection:
            connection.execute(sa.update(p).filter_by(route=route, tried_as=number).values(**tried))

    def cut_retry(self, route: str, number: int, pieces: Sequence[Sequence[Postponed]]) -> None:
        """Try what a retry has, of which nothing was written, in these pieces, each by itself."""
        with self.writing() as connection:
            kept = self._take_out_retry(connection, route, number)
            for piece in pieces:
                self._begin_retry(connection, route, self._insert_postponed(connection, route, piece, kept))

    def wake(self, route: str, names: Collection[str]) -> None:
        """All groups of these names are due at once."""
        with self.writing() as connection:
            self._wake(connection, route, names)

    @property
    def _queue(self) -> tuple[sa.ColumnElement[int], ...]:
        """The order in which groups were postponed first."""
        p = self._t.postponed.c
        return sa.func.coalesce(p.queued_as, p.number), p.number

    def _is_due(self) -> sa.ColumnElement[bool]:
        p, now = self._t.postponed.c, time.time()
        # Later than it can be: the clock was set back. Without a time: an older release has postponed it.
        return sa.or_(p.due_at.is_(None), p.due_at <= now, p.due_at > now + p.delay)

    def _begin_retry(self, connection: sa.Connection, route: str, ids: Sequence[int]) -> int:
        p, b, courses = self._t.postponed, self._t.batches, self._t.courses
        locked = sa.select(courses.c.last_number).filter_by(route=route).with_for_update()
        used: int = connection.execute(locked).scalar_one()
        listed = connection.execute(sa.select(sa.func.max(b.c.number)).filter_by(route=route)).scalar()
        number = max(used, listed or 0) + 1
        connection.execute(sa.update(courses).filter_by(route=route).values(last_number=number))
        for some in _chunks(ids):
            begun = sa.update(p).where(p.c.number.in_(some))
            connection.execute(begun.values(tried_as=number, due_at=AT_ONCE))
        return number

    def _take_out_retry(self, connection: sa.Connection, route: str, number: int) -> _Kept:
        """Remove the groups of a retry."""
        p = self._t.postponed
        here = sa.and_(p.c.route == route, p.c.tried_as == number)
        since, attempts, first = sa.func.min(p.c.since), sa.func.max(p.c.attempts), sa.func.min(self._queue[0])
        found = connection.execute(sa.select(p.c.group, since, attempts, first).where(here).group_by(p.c.group)).all()
        items = self._remove_postponed(connection, here)
        return _Kept(
            items,
            min((row[3] for row in found), default=None),
            {row[0]: row[1] for row in found},
            {row[0]: row[2] for row in found},
        )

    def _insert_postponed(
        self, connection: sa.Connection, route: str, groups: Sequence[Postponed], kept: _Kept = NOTHING_KEPT
    ) -> list[int]:
        """Returns the ids of the groups. ``kept``: what is known of those that have waited before."""
        if not groups:
            return []
        p, now, packed = self._t.postponed, time.time(), pack_places([group.places for group in groups])
        # Thousands of groups may wait for one reason.
        reasons = {reason: redacted(reason) for reason in {group.reason for group in groups}}
        rows = [
            {
                "route": route, "group": group.group, "about": group.about, "rows": group.rows, "places": places,
                "delay": group.delay, "due_at": now + group.delay, "queued_as": kept.queued_as,
                "since": kept.since.get(group.group, now), "attempts": kept.attempts.get(group.group, 0),
                "reason": reasons[group.reason],
            }
            for group, places in zip(groups, packed.groups, strict=True)
        ]  # fmt: skip
        # Numbers grow. A statement that returns them takes a round trip per row in some databases.
        before = connection.execute(sa.select(sa.func.max(p.c.number)).filter_by(route=route)).scalar()
        connection.execute(sa.insert(p), rows)
        mine = sa.select(p.c.number).where(p.c.route == route, p.c.number > (before or 0)).order_by(p.c.number)
        ids = list(connection.execute(mine).scalars())
        firsts = [
            {"number": ids[at], "partition": partition, "first": first} for at, partition, first in packed.first_offsets
        ]
        connection.execute(sa.insert(self._t.postponed_offsets), firsts)
        return ids

    def _remove_postponed(self, connection: sa.Connection, which: sa.ColumnElement[bool]) -> int:
        """Remove the groups that ``which`` finds, and return how many items they have."""
        p, o = self._t.postponed, self._t.postponed_offsets
        rows = connection.execute(sa.select(sa.func.sum(p.c["rows"])).where(which)).scalar()
        connection.execute(sa.delete(o).where(o.c.number.in_(sa.select(p.c.number).where(which))))
        connection.execute(sa.delete(p).where(which))
        return int(rows or 0)

    def _remove_groups(self, connection: sa.Connection, ids: Collection[int]) -> None:
        for table in (self._t.postponed_offsets, self._t.postponed):
            for some in _chunks(list(ids)):
                connection.execute(sa.delete(table).where(table.c.number.in_(some)))

    def _supersede(
        self, connection: sa.Connection, route: str, superseded: Sequence[Superseded]
    ) -> dict[tuple[str, str], int]:
        """Remove what nobody needs any more, and return how many items that are, by the group and the reason. A retry
        that was begun keeps its own: they may be at the destination."""
        p = self._t.postponed.c
        reasons = {(each.group, each.about): each.reason for each in superseded}
        if not reasons:
            return {}
        query = sa.select(p.number, p.group, p.about, p["rows"]).where(p.route == route, p.tried_as.is_(None))
        gone, items = [], Counter[tuple[str, str]]()
        for number, group, about, rows in connection.execute(query):
            reason = reasons.get((group, about))
            if reason is not None:
                gone.append(number)
                items[group, reason] += rows
        self._remove_groups(connection, gone)
        return dict(items)

    def _wake(self, connection: sa.Connection, route: str, names: Collection[str]) -> None:
        p = self._t.postponed
        for some in _chunks(sorted(names)):
            named = sa.update(p).where(p.c.route == route, p.c.group.in_(some))
            connection.execute(named.values(due_at=AT_ONCE))

    def _leave_out_postponed(self, connection: sa.Connection, route: str, ranges: Mapping[int, tuple[int, int]]) -> int:
        """Take the items of these ranges out of what waits, and return how many they are. A retry that was begun keeps
        its own: they may be at the destination."""
        p = self._t.postponed
        found, gone = 0, []
        for row in connection.execute(sa.select(p).where(p.c.route == route, p.c.tried_as.is_(None))).all():
            group = _group(row)
            left = _without(group.places, ranges)
            if left.num_rows < group.rows:
                found += group.rows - left.num_rows
                gone.append(group.id)
                if left.num_rows:
                    kept = _Kept(0, row.queued_as or row.number, {row.group: row.since}, {row.group: row.attempts})
                    self._insert_postponed(connection, route, [replace(group, places=left)], kept)
        self._remove_groups(connection, gone)
        return found

    def _postponed_from(self, connection: sa.Connection, route: str, partition: int) -> int | None:
        """The lowest offset of a partition that waits at the destination."""
        p, o = self._t.postponed, self._t.postponed_offsets
        joined = sa.select(sa.func.min(o.c.first)).join(p, p.c.number == o.c.number)
        return connection.execute(joined.where(p.c.route == route, o.c.partition == partition)).scalar()

    def _postponed_partitions(self, connection: sa.Connection, route: str) -> list[int]:
        p, o = self._t.postponed, self._t.postponed_offsets
        joined = sa.select(o.c.partition).join(p, p.c.number == o.c.number).where(p.c.route == route).distinct()
        return list(connection.execute(joined).scalars())

    def _postponed_rows(self, connection: sa.Connection, route: str) -> int:
        p = self._t.postponed
        return int(connection.execute(sa.select(sa.func.sum(p.c["rows"])).where(p.c.route == route)).scalar() or 0)


def _group(row: sa.Row[Any]) -> PostponedGroup:
    return PostponedGroup(
        row.group, unpack_places(row.places), redacted(row.reason), row.delay, row.about, row.number, row.attempts,
        row.tried_as, row.since,
    )  # fmt: skip


def _chunks(values: Sequence[_Value]) -> Iterator[Sequence[_Value]]:
    return (values[start : start + MOST_VALUES] for start in range(0, len(values), MOST_VALUES))


def _without(places: pa.RecordBatch, ranges: Mapping[int, tuple[int, int]]) -> pa.RecordBatch:
    partitions, offsets = (places.column(name).to_numpy() for name in ("partition", "offset"))
    inside = np.zeros(places.num_rows, np.bool_)
    for partition, (start, end) in ranges.items():
        inside |= (partitions == partition) & (start <= offsets) & (offsets < end)
    return places.filter(pa.array(~inside))
