"""Items that wait at the destination though their batch is committed, and how that is settled.

They wait in groups. A retry takes some groups and has a number of its own, from the same row as batches, so that the
destination can tell a second attempt from a new one; it has no range. Which groups it takes is fixed until it is
settled.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import sqlalchemy as sa

from penstock.engine.ledger.accounts import Postponed, PostponedGroup
from penstock.engine.ledger.database import Database
from penstock.redaction import redacted


class PostponedItems(Database):
    def postponed(self, route: str) -> list[PostponedGroup]:
        """What waits at the destination, the oldest group first."""
        p = self._t.postponed
        return [_group(row) for row in self.rows(sa.select(p).filter_by(route=route).order_by(p.c.number))]

    def postponed_groups(self, route: str) -> set[str]:
        """The names of the groups that wait."""
        return {row.group for row in self.rows(sa.select(self._t.postponed.c.group).filter_by(route=route).distinct())}

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

    def begin_retry(self, route: str, groups: Sequence[PostponedGroup]) -> int:
        """Fix that these groups are tried together, and return the number of the retry."""
        with self.writing() as connection:
            return self._begin_retry(connection, route, [group.id for group in groups])

    def note_retry(self, route: str, number: int, reason: str) -> None:
        """Note that a retry was not taken."""
        p = self._t.postponed
        tried = {"attempts": p.c.attempts + 1, "reason": redacted(reason)}
        with self.writing() as connection:
            connection.execute(sa.update(p).filter_by(route=route, tried_as=number).values(**tried))

    def cut_retry(self, route: str, number: int, pieces: Sequence[Sequence[Postponed]]) -> None:
        """Try what a retry has, of which nothing was written, in these pieces, each by itself."""
        with self.writing() as connection:
            self._remove_postponed(connection, route, self._t.postponed.c.tried_as == number)
            for piece in pieces:
                self._begin_retry(connection, route, self._insert_postponed(connection, route, piece))

    def _begin_retry(self, connection: sa.Connection, route: str, ids: Sequence[int]) -> int:
        p, b, courses = self._t.postponed, self._t.batches, self._t.courses
        locked = sa.select(courses.c.last_number).filter_by(route=route).with_for_update()
        used: int = connection.execute(locked).scalar_one()
        listed = connection.execute(sa.select(sa.func.max(b.c.number)).filter_by(route=route)).scalar()
        number = max(used, listed or 0) + 1
        connection.execute(sa.update(courses).filter_by(route=route).values(last_number=number))
        connection.execute(sa.update(p).where(p.c.number.in_(ids)).values(tried_as=number))
        return number

    def _insert_postponed(self, connection: sa.Connection, route: str, groups: Sequence[Postponed]) -> list[int]:
        ids = []
        for group in groups:
            about = {
                "route": route, "group": group.group, "rows": group.rows, "places": _packed(group.places),
                "delay": group.delay, "since": time.time(), "attempts": 0, "reason": redacted(group.reason),
            }  # fmt: skip
            key = connection.execute(sa.insert(self._t.postponed).values(**about)).inserted_primary_key
            assert key is not None
            ids.append(int(key[0]))
            self._insert_postponed_offsets(connection, ids[-1], group.places)
        return ids

    def _insert_postponed_offsets(self, connection: sa.Connection, number: int, places: pa.RecordBatch) -> None:
        partitions, offsets = (places.column(name).to_numpy() for name in ("partition", "offset"))
        for partition in np.unique(partitions).tolist():
            first = int(offsets[partitions == partition].min())
            row = {"number": number, "partition": partition, "first": first}
            connection.execute(sa.insert(self._t.postponed_offsets).values(row))

    def _remove_postponed(self, connection: sa.Connection, route: str, which: sa.ColumnElement[bool]) -> int:
        """Remove the groups that ``which`` finds, and return how many items they have."""
        p, o = self._t.postponed, self._t.postponed_offsets
        chosen = sa.and_(p.c.route == route, which)
        rows = connection.execute(sa.select(sa.func.sum(p.c["rows"])).where(chosen)).scalar()
        connection.execute(sa.delete(o).where(o.c.number.in_(sa.select(p.c.number).where(chosen))))
        connection.execute(sa.delete(p).where(chosen))
        return int(rows or 0)

    def _leave_out_postponed(self, connection: sa.Connection, route: str, ranges: Mapping[int, tuple[int, int]]) -> int:
        """Take the items of these ranges out of what waits, and return how many they are. A retry that was begun keeps
        its own: they may be at the destination."""
        p = self._t.postponed
        found = 0
        for row in connection.execute(sa.select(p).where(p.c.route == route, p.c.tried_as.is_(None))).all():
            group = _group(row)
            left = _without(group.places, ranges)
            if left.num_rows < group.rows:
                found += group.rows - left.num_rows
                self._remove_postponed(connection, route, p.c.number == group.id)
                if left.num_rows:
                    self._insert_postponed(connection, route, [replace(group, places=left)])
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
    places = _unpacked(row.places)
    reason = redacted(row.reason)
    return PostponedGroup(row.group, places, reason, row.delay, row.number, row.attempts, row.tried_as)


def _packed(places: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, places.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(places)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _unpacked(packed: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(packed) as reader:
        return reader.read_next_batch()


def _without(places: pa.RecordBatch, ranges: Mapping[int, tuple[int, int]]) -> pa.RecordBatch:
    partitions, offsets = (places.column(name).to_numpy() for name in ("partition", "offset"))
    inside = np.zeros(places.num_rows, np.bool_)
    for partition, (start, end) in ranges.items():
        inside |= (partitions == partition) & (start <= offsets) & (offsets < end)
    return places.filter(pa.array(~inside))
