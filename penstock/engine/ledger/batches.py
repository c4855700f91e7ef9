"""Batches in the ledger, from the fixed range to the commit, as the package promises them. A number is never given to a
second batch, even if the first was abandoned."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from penstock.destinations.contract import Batch, TableReceipt
from penstock.engine.history.batch_origin import Origin
from penstock.engine.ledger.accounts import (
    LOADED_FOR_OTHERS,
    OVERFLOWING,
    PASSING_OVER,
    CommittedBatch,
    Halt,
    MarkedTable,
    Position,
    RouteState,
    Settlement,
    Standing,
    WaitingPart,
)
from penstock.engine.ledger.database import add_to_row, put_row
from penstock.engine.ledger.range_text import ranges_from_text, ranges_to_text
from penstock.engine.ledger.summaries import Summaries
from penstock.engine.ledger.waiting_tables import WaitingTables
from penstock.errors import LedgerError
from penstock.log.lineage import Lineage
from penstock.redaction import redacted

LOADED, LOADED_IN_PART = "loaded", "loaded in part"
"""The status of a table's part of a batch; in part means that the target refused some rows."""

KEPT_WRITERS = 500
"""How many writers of a partition a route remembers; the newest ones."""

KEPT_BATCHES = 10_000
"""How many batches of a route stay listed; totals are kept for ever."""


class Batches(WaitingTables, Summaries):
    def standing(self, route: str) -> Standing:
        """The route's positions, its batch under way, what it must skip and where it halted."""
        with self.reading() as connection:
            return self._standing(connection, route)

    def begin(
        self,
        route: str,
        ranges: Mapping[int, tuple[int, int]],
        origin: Origin | None = None,
        digest: int | None = None,
    ) -> Batch | None:
        """Give a range its batch number; ``None`` if it was committed already. ``origin`` says which records these are,
        and is kept with the route; ``digest`` what was staged of them, and is kept with a batch that is new.

        The range must start at the route's position. The same range gets the same number again, so that a destination
        can tell a second attempt from a new batch.
        """
        with self.writing() as connection:
            course = self._lock_course(connection, route)
            standing = self._standing(connection, route)
            positions, pending = standing.positions, standing.pending
            if all(end <= _committed(positions, partition) for partition, (_, end) in ranges.items()):
                return None
            for partition, (start, _) in ranges.items():
                committed = _committed(positions, partition)
                if start != committed:
                    raise LedgerError(
                        "PEN-LGR-003",
                        f"route '{route}' was given partition {partition} from offset {start}, but stands at"
                        f" {committed}.",
                        "The route's checkpoint is not of this ledger. Stop the pipeline, then go on after what the"
                        f" route has delivered: penstock offset adopt {route}",
                    )
            if pending is not None:
                if dict(pending.ranges) == dict(ranges):
                    return replace(pending, origin="" if origin is None else origin.to_text())
                raise LedgerError(
                    "PEN-LGR-004",
                    f"route '{route}' has batch {pending.number} over {ranges_to_text(pending.ranges)} under way and"
                    f" was given {ranges_to_text(ranges)}.",
                    "Restart the pipeline; it delivers the batch that is under way first.",
                )
            for partition, stretch in origin.stretches.items() if origin is not None else ():
                self._note_lineage(connection, route, partition, stretch.lineage, stretch.start)
            batch = self._insert_batch(connection, route, ranges, course.last_number, digest)
            return replace(batch, origin="" if origin is None else origin.to_text())

    def begun_digest(self, route: str) -> int | None:
        """The digest of the batch under way; ``None`` if it has none."""
        b = self._t.batches
        found = next(iter(self.rows(sa.select(b.c.digest).where(*_under_way(b, route)))), None)
        return None if found is None or found.digest is None else int(found.digest)

    def set_digest(self, route: str, digest: int) -> None:
        """Note what was staged of the batch under way."""
        b = self._t.batches
        with self.writing() as connection:
            connection.execute(sa.update(b).where(*_under_way(b, route)).values(digest=str(digest)))

    def shorten(self, batch: Batch, ranges: Mapping[int, tuple[int, int]]) -> None:
        """Shorten a batch under way to these ranges, which are its first part. The destination has refused all of it,
        so nothing was written under its number."""
        b = self._t.batches
        with self.writing() as connection:
            changed = {"ranges": ranges_to_text(ranges), "digest": None}
            connection.execute(sa.update(b).where(*_under_way(b, batch.route)).values(**changed))

    def halt(self, route: str, halt: Halt, message: str) -> None:
        """Halt a route before a record that was refused: abandons the batch under way, of which nothing was written,
        and notes why the route waits."""
        with self.writing() as connection:
            self._lock_course(connection, route)
            self._abandon(connection, route)
            connection.execute(sa.delete(self._t.halts).filter_by(route=route))
            kept = replace(halt, message=redacted(halt.message))
            connection.execute(sa.insert(self._t.halts).values(route=route, **asdict(kept), at=time.time()))
            self._set_state(connection, route, RouteState.HALTED, message)

    def commit(self, batch: Batch, settlement: Settlement) -> dict[str, int]:
        """Record what became of the batch and move the route's offsets, in one transaction. Returns how many items that
        had waited it has superseded, by the reason."""
        s, skipped, added = settlement, settlement.items_skipped, settlement.items_added
        if s.items + added != s.loaded + skipped + s.failed + s.items_waiting:
            raise LedgerError(
                "PEN-LGR-002",
                f"batch {batch.number} of route '{batch.route}' does not add up: {s.items} in + {added} added is not "
                f"{s.loaded} loaded + {skipped} skipped + {s.failed} failed + {s.items_waiting} waiting.",
                "The batch is not committed. This is a defect: please report it with this message.",
            )
        try:
            with self.writing() as connection:
                return self._commit(connection, batch, settlement)
        except IntegrityError as error:
            raise LedgerError(
                "PEN-LGR-002",
                f"batch {batch.number} of route '{batch.route}' was refused by the ledger: {error.orig}.",
                "The batch is not committed. This is a defect: please report it with this message.",
            ) from error

    def _commit(self, connection: sa.Connection, batch: Batch, s: Settlement) -> dict[str, int]:
        t, route, skipped, added = self._t, batch.route, s.items_skipped, s.items_added
        if s.superseded:
            # An operator may acknowledge what waits meanwhile.
            self._lock_course(connection, route)
        done = connection.execute(
            sa.update(t.batches)
            .where(
                t.batches.c.route == route,
                t.batches.c.number == batch.number,
                t.batches.c.committed_at.is_(None),
            )
            .values(
                committed_at=time.time(), items=s.items, added=added, loaded=s.loaded, skipped=skipped,
                failed=s.failed, waiting=s.items_waiting, seconds=s.seconds,
            )
        )  # fmt: skip
        if done.rowcount != 1:
            raise LedgerError(
                "PEN-LGR-005",
                f"batch {batch.number} of route '{route}' is not under way.",
                "Another engine may run on this data: stop one of them.",
            )
        self._insert_waiting(connection, batch, s.deferred)
        had_waiting = self._postponed_partitions(connection, route)
        superseded = self._settle_earlier(connection, route, s)
        self._insert_postponed(connection, route, s.postponed)
        self._set_held(connection, route, s.holds)
        elsewhere = {*s.holds, *had_waiting, *self._postponed_partitions(connection, route)} - batch.ranges.keys()
        for partition in elsewhere:
            self._update_hold(connection, route, partition)
        for partition, (_, end) in batch.ranges.items():
            values = {"committed": end, "hold": self._waits_from(connection, route, partition, end)}
            passed = {"route": route, "partition": partition}
            put_row(connection, t.offsets, passed, values, values)
            connection.execute(sa.delete(t.halts).filter_by(**passed).where(t.halts.c.offset < end))
            connection.execute(sa.delete(t.acknowledged).filter_by(**passed).where(t.acknowledged.c.end <= end))
            begun = sa.update(t.acknowledged).filter_by(**passed).where(t.acknowledged.c.first < end)
            connection.execute(begun.values(first=end))
        for table in (t.deliveries, t.progress):
            connection.execute(sa.delete(table).filter_by(route=route, number=batch.number))
        self._count_settled(connection, route, batch.number, s, s.items, s.items_waiting)
        for table in (t.batches, t.deliveries):
            old = table.c.number <= batch.number - KEPT_BATCHES
            connection.execute(sa.delete(table).filter_by(route=route).where(old))
        return superseded

    def settle_waiting(self, part: WaitingPart, settlement: Settlement) -> bool:
        """Record what became of a table's part of a batch that was committed without it. Returns ``False``, and counts
        nothing, if an operator has given it up meanwhile."""
        s, b, route = settlement, self._t.batches, part.route
        if s.items != part.rows or s.items + s.items_added != s.loaded + s.items_skipped + s.failed:
            raise LedgerError(
                "PEN-LGR-017",
                f"{part.rows} rows of table '{part.table}' waited since batch {part.batch.number} of route '{route}',"
                f" and {s.items} + {s.items_added} added is not {s.loaded} loaded + {s.items_skipped} skipped +"
                f" {s.failed} failed.",
                "They wait on. This is a defect: please report it with this message.",
            )
        with self.writing() as connection:
            self._lock_course(connection, route)
            if not self._delete_waiting(connection, route, part.batch.number, part.table):
                return False
            listed = sa.update(b).filter_by(route=route, number=part.batch.number)
            connection.execute(
                listed.values(
                    added=b.c.added + s.items_added, loaded=b.c.loaded + s.loaded,
                    skipped=b.c.skipped + s.items_skipped, failed=b.c.failed + s.failed, waiting=b.c.waiting - s.items,
                )
            )  # fmt: skip
            self._count_settled(connection, route, part.batch.number, s, 0, -s.items)
        return True

    def settle_retry(self, route: str, number: int, settlement: Settlement) -> tuple[list[int], dict[str, int]]:
        """Record what became of the items of a retry, in one transaction. What it postpones waits on. Returns the ids
        of these groups, and how many other items that had waited it has superseded, by the reason."""
        s = settlement
        with self.writing() as connection:
            self._lock_course(connection, route)
            partitions = self._postponed_partitions(connection, route)
            kept = self._take_out_retry(connection, route, number)
            items = kept.items
            if s.items != items or items + s.items_added != s.loaded + s.items_skipped + s.failed + s.items_waiting:
                raise LedgerError(
                    "PEN-LGR-019",
                    f"{items} items waited for retry {number} of route '{route}', and {s.items} + {s.items_added} added"
                    f" is not {s.loaded} loaded + {s.items_skipped} skipped + {s.failed} failed + {s.items_waiting}"
                    " waiting.",
                    "They wait on. This is a defect: please report it with this message.",
                )
            superseded = self._settle_earlier(connection, route, s)
            postponed = self._insert_postponed(connection, route, s.postponed, kept.tried())
            for partition in partitions:
                self._update_hold(connection, route, partition)
            for table in (self._t.deliveries, self._t.progress):
                connection.execute(sa.delete(table).filter_by(route=route, number=number))
            self._count_settled(connection, route, number, s, 0, s.items_waiting - items)
        return postponed, superseded

    def _settle_earlier(self, connection: sa.Connection, route: str, s: Settlement) -> dict[str, int]:
        """What a settlement says of groups that waited before it. Returns how many items it has superseded, by the
        reason."""
        superseded = Counter[str]()
        tallies: dict[str, Counter[str]] = {}
        for (group, reason), items in self._supersede(connection, route, s.superseded).items():
            superseded[reason] += items
            tallies.setdefault(group, Counter())[reason] += items
        for reason, items in superseded.items():
            self._move_waiting_to_skipped(connection, route, items, reason)
        self._add_tallies(connection, route, tallies)
        self._wake(connection, route, s.wakes)
        return dict(superseded)

    def _move_waiting_to_skipped(self, connection: sa.Connection, route: str, items: int, label: str) -> None:
        """Count waiting items as skipped under ``label``."""
        c = self._t.totals.c
        let_go = {"waiting": c.waiting - items, "skipped": c.skipped + items}
        connection.execute(sa.update(self._t.totals).where(c.route == route).values(let_go))
        add_to_row(connection, self._t.skips, {"route": route, "step": label}, {"items": items})

    def _count_settled(
        self, connection: sa.Connection, route: str, number: int, s: Settlement, items: int, waiting: int
    ) -> None:
        t, c = self._t, self._t.totals.c
        connection.execute(
            sa.update(t.totals)
            .where(c.route == route)
            .values(
                items=c["items"] + items, added=c.added + s.items_added, loaded=c.loaded + s.loaded,
                skipped=c.skipped + s.items_skipped, failed=c.failed + s.failed, waiting=c.waiting + waiting,
                **_extent(s),
            )
        )  # fmt: skip
        if s.marked:
            known = sa.update(t.courses).where(t.courses.c.route == route, t.courses.c.marked < number)
            connection.execute(known.values(marked=number))
        for receipt in s.tables:
            marked = int(receipt.table in s.marked)
            connection.execute(sa.insert(t.deliveries).values(**_delivery(route, number, receipt), marked=marked))
            rows = {"rows": receipt.rows, "merged": receipt.merged}
            add_to_row(connection, t.table_totals, {"route": route, "target": receipt.table}, rows)
            self._add_tallies(connection, route, receipt.tallies)
        for step, skipped in s.skipped.items():
            add_to_row(connection, t.skips, {"route": route, "step": step}, {"items": skipped})
        for step, added in s.added.items():
            add_to_row(connection, t.additions, {"route": route, "step": step}, {"items": added})
        for name, count in s.counts.items():
            add_to_row(connection, t.step_counts, {"route": route, "name": name}, {"value": count})
        for name, level in s.levels.items():
            put_row(connection, t.step_levels, {"route": route, "name": name}, {"value": level}, {"value": level})

    def acknowledged_in(self, route: str, ranges: Mapping[int, tuple[int, int]]) -> dict[int, list[tuple[int, int]]]:
        """The offsets in these ranges that an operator has acknowledged."""
        with self.reading() as connection:
            return self._acknowledged_in(connection, route, ranges)

    def note_table_loaded(self, batch: Batch, receipt: TableReceipt) -> None:
        """Note that one table of a batch under way has its rows: they are not written again, whatever happens to other
        tables."""
        with self.writing() as connection:
            connection.execute(sa.insert(self._t.deliveries).values(_delivery(batch.route, batch.number, receipt)))

    def loaded_tables(self, batch: Batch) -> list[TableReceipt]:
        """The tables of a batch for which ``note_table_loaded`` was called."""
        d = self._t.deliveries
        query = sa.select(d).where(
            d.c.route == batch.route, d.c.number == batch.number, d.c.status.in_((LOADED, LOADED_FOR_OTHERS))
        )
        rows = self.rows(query)
        others = self.overflowing(batch) if any(row.status == LOADED_FOR_OTHERS for row in rows) else ()
        meant_for = {LOADED: (), LOADED_FOR_OTHERS: others}
        return [
            TableReceipt(row.target, row.rows, repeated=True, merged=row.merged, meant_for=meant_for[row.status])
            for row in rows
        ]

    def note_overflow(self, batch: Batch, tables: Collection[str]) -> None:
        """Note that the rows of these tables go to the overflow table, at every attempt of the batch under way."""
        note = {"route": batch.route, "number": batch.number, "rows": 0, "status": OVERFLOWING, "merged": 0}
        with self.writing() as connection:
            connection.execute(sa.insert(self._t.deliveries), [{**note, "target": table} for table in tables])

    def note_passed_over(self, batch: Batch) -> None:
        """Note, before it is written, that a batch under way leaves out acknowledged records: they stay left out until
        it is settled."""
        d = self._t.deliveries
        note = {"route": batch.route, "number": batch.number, "target": "", "status": PASSING_OVER}
        with self.writing() as connection:
            if connection.execute(sa.select(d.c.number).filter_by(**note)).first() is None:
                connection.execute(sa.insert(d).values(**note, rows=0, merged=0))

    def overflowing(self, batch: Batch) -> list[str]:
        """The tables of a batch whose rows go to the overflow table."""
        d = self._t.deliveries.c
        query = sa.select(d.target).where(d.route == batch.route, d.number == batch.number, d.status == OVERFLOWING)
        return [row.target for row in self.rows(query)]

    def batches(self, route: str, last: int = 20) -> list[CommittedBatch]:
        """The newest committed batches, newest first."""
        b = self._t.batches
        query = sa.select(b).where(b.c.route == route, b.c.committed_at.is_not(None)).order_by(b.c.number.desc())
        return [
            CommittedBatch(
                row.number, ranges_from_text(row.ranges), row.committed_at, row.items, row.loaded, row.skipped,
                row.failed, row.waiting, row.seconds,
            )
            for row in self.rows(query.limit(last))
        ]  # fmt: skip

    def newest_marked(self, route: str) -> int:
        """The number of the newest batch that the destination must have a mark of; 0 if there is none."""
        with self.reading() as connection:
            return connection.execute(sa.select(self._t.courses.c.marked).filter_by(route=route)).scalar() or 0

    def marked_tables(self, route: str) -> list[MarkedTable]:
        """What the destination must have marks of, as far as it is listed."""
        with self.reading() as connection:
            return self._marked_tables(connection, route)

    def first_listed(self, route: str) -> int:
        """The number of the oldest batch that is listed; 0 if there is none."""
        b = self._t.batches.c
        with self.reading() as connection:
            return connection.execute(sa.select(sa.func.min(b.number)).where(b.route == route)).scalar() or 0

    def _marked_tables(self, connection: sa.Connection, route: str) -> list[MarkedTable]:
        d, b = self._t.deliveries, self._t.batches
        listed = d.outerjoin(b, sa.and_(b.c.route == d.c.route, b.c.number == d.c.number))
        query = sa.select(d, b.c.ranges).select_from(listed).where(d.c.route == route, d.c.marked == 1)
        return [
            MarkedTable(row.number, row.target, row.rows, None if row.ranges is None else ranges_from_text(row.ranges))
            for row in connection.execute(query)
        ]

    def _forget_marks(self, connection: sa.Connection, route: str) -> None:
        """Expect none of the earlier batches at the destination any more."""
        connection.execute(sa.update(self._t.deliveries).filter_by(route=route).values(marked=0))
        connection.execute(sa.update(self._t.courses).filter_by(route=route).values(marked=0))

    def _forget_marks_of(self, connection: sa.Connection, route: str, parts: Collection[MarkedTable]) -> None:
        """Do not expect these at the destination any more."""
        d = self._t.deliveries
        for part in parts:
            here = sa.update(d).filter_by(route=route, number=part.number, target=part.table)
            connection.execute(here.values(marked=0))
        left = max((part.number for part in self._marked_tables(connection, route)), default=0)
        connection.execute(sa.update(self._t.courses).filter_by(route=route).values(marked=left))

    def _standing(self, connection: sa.Connection, route: str) -> Standing:
        t = self._t
        positions = {
            row.partition: Position(row.committed, row.hold)
            for row in connection.execute(sa.select(t.offsets).filter_by(route=route))
        }
        begun = connection.execute(sa.select(t.batches).where(*_under_way(t.batches, route))).first()
        done: dict[int, list[tuple[int, int]]] = {}
        for row in connection.execute(sa.select(t.acknowledged).filter_by(route=route).order_by("partition", "first")):
            done.setdefault(row.partition, []).append((row.first, row.end))
        found = connection.execute(sa.select(t.halts).filter_by(route=route)).first()
        return Standing(
            positions,
            None if begun is None else Batch(self.scope, route, begun.number, ranges_from_text(begun.ranges)),
            done,
            None if found is None else Halt(found.partition, found.offset, found.step, found.code, found.message),
        )

    def _insert_batch(
        self,
        connection: sa.Connection,
        route: str,
        ranges: Mapping[int, tuple[int, int]],
        last_number: int,
        digest: int | None = None,
    ) -> Batch:
        b = self._t.batches
        listed = connection.execute(sa.select(sa.func.max(b.c.number)).where(b.c.route == route)).scalar()
        number = max(listed or 0, last_number) + 1
        about = {
            "route": route, "number": number, "ranges": ranges_to_text(ranges), "began_at": time.time(),
            "digest": None if digest is None else str(digest),
        }  # fmt: skip
        connection.execute(sa.insert(b).values(**about))
        return Batch(self.scope, route, number, dict(ranges))

    def _began_at(self, connection: sa.Connection, batch: Batch) -> float | None:
        b = self._t.batches.c
        known = sa.select(b.began_at).where(b.route == batch.route, b.number == batch.number)
        return connection.execute(known).scalar()

    def _note_lineage(
        self, connection: sa.Connection, route: str, partition: int, lineage: Lineage, start: int
    ) -> None:
        """Replace the known writers of the offsets from ``start`` on by those of ``lineage``."""
        lineages = self._t.lineages
        key = {"route": route, "partition": partition}
        known = connection.execute(sa.select(lineages.c.entries).filter_by(**key)).scalar()
        entries = [entry for entry in json.loads(known or "[]") if entry[0] < start]
        for first, writer in lineage.incarnations:
            if not entries or entries[-1][1] != writer:
                entries.append([first, writer])
        text = json.dumps(entries[-KEPT_WRITERS:])
        if known != text:
            put_row(connection, lineages, key, {"entries": text}, {"entries": text})

    def _abandon(self, connection: sa.Connection, route: str) -> None:
        """Abandon the batch under way, if any, and its number with it."""
        t = self._t
        number = connection.execute(sa.select(t.batches.c.number).where(*_under_way(t.batches, route))).scalar()
        if number is None:
            return
        for table in (t.batches, t.deliveries):
            connection.execute(sa.delete(table).filter_by(route=route, number=number))
        used = sa.update(t.courses).where(t.courses.c.route == route, t.courses.c.last_number < number)
        connection.execute(used.values(last_number=number))


def _under_way(batches: sa.Table, route: str) -> tuple[sa.ColumnElement[bool], ...]:
    return batches.c.route == route, batches.c.committed_at.is_(None)


def _delivery(route: str, number: int, receipt: TableReceipt) -> dict[str, object]:
    whole = LOADED_FOR_OTHERS if receipt.meant_for else LOADED
    status = whole if receipt.failures is None else LOADED_IN_PART
    return {
        "route": route, "number": number, "target": receipt.table, "rows": receipt.rows, "status": status,
        "merged": receipt.merged,
    }  # fmt: skip


def _committed(positions: Mapping[int, Position], partition: int) -> int:
    return positions[partition].committed if partition in positions else 0


def _extent(settlement: Settlement) -> dict[str, int]:
    """Where the failed file ends after a settlement, if it says so."""
    extent = settlement.failed_extent
    return {} if extent is None else {"failed_entries": extent.entries, "failed_bytes": extent.bytes}
