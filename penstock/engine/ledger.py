"""The ledger: what every route has taken from the log, and what became of it.

It promises two things. A batch is counted once, however often it is tried: ``begin`` gives a range its number, the same
one at every attempt, and knows a range that was committed. And the books balance: ``commit`` moves the offsets and the
counts in one transaction that the database itself refuses unless in + added = loaded + skipped + failed + waiting.

SQLite (WAL) by default; PostgreSQL by URL when several machines share it.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from penstock.destinations.contract import Batch, TableReceipt
from penstock.engine.ledger_tables import LEDGER_VERSION, Tables, tables
from penstock.errors import LedgerAway, LedgerError

LOADED, LOADED_IN_PART = "loaded", "loaded in part"
"""What a table's part of a batch can be; in part means that the target refused some rows."""

KEPT_BATCHES = 10_000
"""How many batches of a route stay listed one by one; totals are kept for ever."""


class RouteState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    RETRYING = "retrying"
    CRASHED = "crashed"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Position:
    """``committed`` is the next offset to read; ``hold`` the lowest one that something still waits on."""

    committed: int
    hold: int


@dataclass(frozen=True)
class Extent:
    """How much of a route's failed file belongs to committed batches."""

    entries: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Settlement:
    """What became of every item of a batch."""

    items: int
    loaded: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    failed: int = 0
    waiting: int = 0
    added: int = 0
    tables: Sequence[TableReceipt] = ()
    failed_extent: Extent | None = None
    """Where the failed file ends with this batch; ``None`` if nothing failed."""
    holds: Mapping[int, int] = field(default_factory=dict)
    """Partitions in which something still waits, and the lowest offset of it."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Totals:
    """The accounting of a route since its first batch."""

    items: int = 0
    added: int = 0
    loaded: int = 0
    skipped: int = 0
    failed: int = 0
    waiting: int = 0

    @property
    def adds_up(self) -> bool:
        return self.items + self.added == self.loaded + self.skipped + self.failed + self.waiting


@dataclass(frozen=True)
class Activity:
    state: RouteState
    since: float
    message: str


@dataclass(frozen=True)
class CommittedBatch:
    number: int
    ranges: Mapping[int, tuple[int, int]]
    committed_at: float
    items: int
    loaded: int
    skipped: int
    failed: int
    waiting: int
    seconds: float


def sqlite_url(path: Path) -> str:
    return f"sqlite:///{path}"


def shown_url(url: str) -> str:
    """The URL without the password that it may hold."""
    return sa.make_url(url).render_as_string(hide_password=True)


class Ledger:
    """Open it with ``Ledger.open``. Safe to use from several threads and processes at once."""

    def __init__(self, engine: sa.Engine, schema: str | None) -> None:
        self._engine = engine
        self._t = tables(schema)
        self.scope = ""

    @classmethod
    def open(cls, url: str, pipeline: str) -> Ledger:
        """Connect, and create the tables if this is a new ledger."""
        engine = _sqlite(url) if url.startswith("sqlite") else _server(url)
        schema = None if engine.dialect.name == "sqlite" else f"penstock_{pipeline}"
        ledger = cls(engine, schema)
        try:
            ledger._create(schema)
        except SQLAlchemyError as error:
            where = shown_url(url)
            raise LedgerAway(
                "PEN-LGR-001",
                f"the ledger at {where} cannot be opened: {getattr(error, 'orig', error)}.",
                "Check `ledger.url` and that the database is up.",
            ) from error
        return ledger

    def close(self) -> None:
        self._engine.dispose()

    # Positions

    def recognise(self, identities: Mapping[int, str]) -> None:
        """Make sure that these partitions are the ones whose offsets are kept here, and remember new ones.

        Offsets of another log would make a route pass over records that it never saw.
        """
        with self.reading() as connection:
            known = {row.partition: row.identity for row in connection.execute(sa.select(self._t.partitions))}
        strangers = sorted(p for p, identity in identities.items() if known.get(p, identity) != identity)
        if strangers:
            raise LedgerError(
                "PEN-LGR-008",
                f"the log is not the one that this ledger knows: partition {strangers[0]} was made anew.",
                "Put the old log back, or start with a new `data_dir`; this ledger's offsets are of another log.",
            )
        new = [{"partition": p, "identity": identity} for p, identity in identities.items() if p not in known]
        if new:
            try:
                with self.writing() as connection:
                    connection.execute(sa.insert(self._t.partitions), new)
            except IntegrityError:
                # Another route saw them at the same moment; what it noted is checked like anything else.
                self.recognise(identities)

    def open_route(self, route: str, starts: Mapping[int, int]) -> dict[int, Position]:
        """Note where a route starts in partitions it has not seen; return its position in all."""
        known = self.offsets(route)
        new = [
            {"route": route, "partition": partition, "committed": start, "hold": start}
            for partition, start in starts.items()
            if partition not in known
        ]
        with self.writing() as connection:
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

    def offsets(self, route: str) -> dict[int, Position]:
        with self.reading() as connection:
            rows = connection.execute(sa.select(self._t.offsets).filter_by(route=route))
            return {row.partition: Position(row.committed, row.hold) for row in rows}

    def routes(self) -> list[str]:
        """Every route that ever opened here, whether or not the config still has it."""
        with self.reading() as connection:
            return list(connection.execute(sa.select(self._t.totals.c.route).order_by("route")).scalars())

    # The batch protocol

    def pending(self, route: str) -> Batch | None:
        """The batch that was begun and not committed, if any: its range must be delivered exactly as it was fixed."""
        b = self._t.batches
        query = sa.select(b).where(b.c.route == route, b.c.committed_at.is_(None))
        with self.reading() as connection:
            row = connection.execute(query).first()
        return None if row is None else Batch(self.scope, route, row.number, _ranges(row.ranges))

    def begin(self, route: str, ranges: Mapping[int, tuple[int, int]]) -> Batch | None:
        """Give a range its batch number, or ``None`` if it was committed already.

        The range must start where the route stands. The same range gets the same number again, so that a destination
        can tell a second attempt from a new batch.
        """
        positions = self.offsets(route)
        if all(end <= _committed(positions, partition) for partition, (_, end) in ranges.items()):
            return None
        for partition, (start, _) in ranges.items():
            committed = _committed(positions, partition)
            if start != committed:
                raise LedgerError(
                    "PEN-LGR-003",
                    f"route '{route}' was given partition {partition} from offset {start}, but stands at {committed}.",
                    "The route's checkpoint is not of this ledger: stop the pipeline, remove the checkpoint folder of "
                    "the route and start again; it goes on from the ledger's offset.",
                )
        pending = self.pending(route)
        if pending is not None:
            if dict(pending.ranges) == dict(ranges):
                return pending
            raise LedgerError(
                "PEN-LGR-004",
                f"route '{route}' has batch {pending.number} over {_text(pending.ranges)} under way and was given "
                f"{_text(ranges)}.",
                "Restart the pipeline; it delivers the batch that is under way first.",
            )
        b = self._t.batches
        with self.writing() as connection:
            last = connection.execute(sa.select(sa.func.max(b.c.number)).where(b.c.route == route)).scalar()
            number = (last or 0) + 1
            connection.execute(
                sa.insert(b).values(route=route, number=number, ranges=_text(ranges), began_at=time.time())
            )
        return Batch(self.scope, route, number, dict(ranges))

    def commit(self, batch: Batch, settlement: Settlement) -> None:
        """Note what became of the batch and move the route's offsets, all or nothing."""
        s, skipped = settlement, sum(settlement.skipped.values())
        if s.items + s.added != s.loaded + skipped + s.failed + s.waiting:
            raise LedgerError(
                "PEN-LGR-002",
                f"batch {batch.number} of route '{batch.route}' does not add up: {s.items} in + {s.added} added is not "
                f"{s.loaded} loaded + {skipped} skipped + {s.failed} failed + {s.waiting} waiting.",
                "The batch is not committed. This is a defect: please report it with this message.",
            )
        try:
            with self.writing() as connection:
                self._commit(connection, batch, settlement, skipped)
        except IntegrityError as error:
            raise LedgerError(
                "PEN-LGR-002",
                f"batch {batch.number} of route '{batch.route}' was refused by the ledger: {error.orig}.",
                "The batch is not committed; it is tried again.",
            ) from error

    def _commit(self, connection: sa.Connection, batch: Batch, s: Settlement, skipped: int) -> None:
        t, route = self._t, batch.route
        done = connection.execute(
            sa.update(t.batches)
            .where(
                t.batches.c.route == route,
                t.batches.c.number == batch.number,
                t.batches.c.committed_at.is_(None),
            )
            .values(
                committed_at=time.time(), items=s.items, added=s.added, loaded=s.loaded, skipped=skipped,
                failed=s.failed, waiting=s.waiting, seconds=s.seconds,
            )
        )  # fmt: skip
        if done.rowcount != 1:
            raise LedgerError(
                "PEN-LGR-005",
                f"batch {batch.number} of route '{route}' is not under way.",
                "Another engine may run on this data: stop one of them.",
            )
        for partition, (_, end) in batch.ranges.items():
            values = {"committed": end, "hold": min(end, s.holds.get(partition, end))}
            moved = connection.execute(
                sa.update(t.offsets)
                .where(t.offsets.c.route == route, t.offsets.c.partition == partition)
                .values(values)
            )
            if moved.rowcount == 0:
                connection.execute(sa.insert(t.offsets).values(route=route, partition=partition, **values))
        extent = (
            {}
            if s.failed_extent is None
            else {"failed_entries": s.failed_extent.entries, "failed_bytes": s.failed_extent.bytes}
        )
        c = t.totals.c
        connection.execute(
            sa.update(t.totals)
            .where(c.route == route)
            .values(
                items=c["items"] + s.items, added=c.added + s.added, loaded=c.loaded + s.loaded,
                skipped=c.skipped + skipped, failed=c.failed + s.failed, waiting=c.waiting + s.waiting, **extent,
            )
        )  # fmt: skip
        known = sa.delete(t.deliveries).where(t.deliveries.c.route == route, t.deliveries.c.number == batch.number)
        connection.execute(known)
        for receipt in s.tables:
            connection.execute(sa.insert(t.deliveries).values(_delivery(batch, receipt)))
        for step, items in s.skipped.items():
            counted = connection.execute(
                sa.update(t.skips)
                .where(t.skips.c.route == route, t.skips.c.step == step)
                .values(items=t.skips.c["items"] + items)
            )
            if counted.rowcount == 0:
                connection.execute(sa.insert(t.skips).values(route=route, step=step, items=items))
        for table in (t.batches, t.deliveries):
            connection.execute(
                sa.delete(table).where(table.c.route == route, table.c.number <= batch.number - KEPT_BATCHES)
            )

    def table_loaded(self, batch: Batch, receipt: TableReceipt) -> None:
        """Note that one table of a batch under way has its rows: they are not written again, whatever happens to the
        others."""
        with self.writing() as connection:
            connection.execute(sa.insert(self._t.deliveries).values(_delivery(batch, receipt)))

    def tables_loaded(self, batch: Batch) -> list[TableReceipt]:
        """The tables of a batch that were noted so."""
        d = self._t.deliveries
        query = sa.select(d).where(d.c.route == batch.route, d.c.number == batch.number, d.c.status == LOADED)
        with self.reading() as connection:
            return [TableReceipt(row.target, row.rows, repeated=True) for row in connection.execute(query)]

    # What people ask

    def totals(self, route: str) -> Totals:
        with self.reading() as connection:
            row = connection.execute(sa.select(self._t.totals).filter_by(route=route)).first()
        if row is None:
            return Totals()
        return Totals(row.items, row.added, row.loaded, row.skipped, row.failed, row.waiting)

    def skips(self, route: str) -> dict[str, int]:
        """Skipped items by the step that skipped them."""
        with self.reading() as connection:
            rows = connection.execute(sa.select(self._t.skips).filter_by(route=route))
            return {row.step: row.items for row in rows}

    def delivered(self, route: str) -> dict[str, int]:
        """Rows per table over the batches that are still listed."""
        d = self._t.deliveries.c
        query = sa.select(d.target, sa.func.sum(d.rows)).where(d.route == route).group_by(d.target).order_by(d.target)
        with self.reading() as connection:
            return {target: int(rows) for target, rows in connection.execute(query)}

    def batches(self, route: str, last: int = 20) -> list[CommittedBatch]:
        """The newest committed batches, newest first."""
        b = self._t.batches
        query = (
            sa.select(b)
            .where(b.c.route == route, b.c.committed_at.is_not(None))
            .order_by(b.c.number.desc())
            .limit(last)
        )
        with self.reading() as connection:
            return [
                CommittedBatch(
                    row.number, _ranges(row.ranges), row.committed_at, row.items, row.loaded, row.skipped, row.failed,
                    row.waiting, row.seconds,
                )
                for row in connection.execute(query)
            ]  # fmt: skip

    def note(self, route: str, state: RouteState, message: str = "") -> None:
        """Say how a route is doing; ``penstock status`` shows it."""
        values = {"state": state.value, "since": time.time(), "message": message}
        with self.writing() as connection:
            known = connection.execute(sa.update(self._t.states).filter_by(route=route).values(values))
            if known.rowcount == 0:
                connection.execute(sa.insert(self._t.states).values(route=route, **values))

    def activity(self, route: str) -> Activity | None:
        with self.reading() as connection:
            row = connection.execute(sa.select(self._t.states).filter_by(route=route)).first()
        return None if row is None else Activity(RouteState(row.state), row.since, row.message)

    # The failed store's books

    def failed_extent(self, route: str) -> Extent:
        with self.reading() as connection:
            row = connection.execute(sa.select(self._t.totals).filter_by(route=route)).first()
        return Extent() if row is None else Extent(row.failed_entries, row.failed_bytes)

    def settled(self, route: str) -> dict[int, str]:
        """Failed entries that an operator replayed or dropped, and which of the two."""
        with self.reading() as connection:
            rows = connection.execute(sa.select(self._t.settled).filter_by(route=route))
            return {row.entry: row.action for row in rows}

    def settle(self, route: str, entries: Sequence[int], action: str) -> None:
        with self.writing() as connection:
            self._settle(connection, route, entries, action)

    def begin_replay(self, route: str, partition: int, offset: int, entries: Sequence[int]) -> None:
        """Note which entries are about to be appended to the log, and where, before they are."""
        with self.writing() as connection:
            connection.execute(
                sa.insert(self._t.replays).values(
                    route=route, partition=partition, offset=offset, entries=json.dumps(list(entries))
                )
            )

    def replay_under_way(self, route: str) -> tuple[int, int, list[int]] | None:
        """Partition, offset and entries of a replay that was begun and not finished."""
        with self.reading() as connection:
            row = connection.execute(sa.select(self._t.replays).filter_by(route=route)).first()
        return None if row is None else (row.partition, row.offset, json.loads(row.entries))

    def finish_replay(self, route: str, appended: bool) -> None:
        """Close the replay under way: its entries are settled if the log has them, open again if not."""
        under_way = self.replay_under_way(route)
        if under_way is None:
            return
        with self.writing() as connection:
            if appended:
                self._settle(connection, route, under_way[2], "replayed")
            connection.execute(sa.delete(self._t.replays).filter_by(route=route))

    def _settle(self, connection: sa.Connection, route: str, entries: Sequence[int], action: str) -> None:
        connection.execute(
            sa.insert(self._t.settled),
            [{"route": route, "entry": entry, "action": action, "at": time.time()} for entry in entries],
        )

    # Connections

    def _create(self, schema: str | None) -> None:
        with self.writing() as connection:
            if schema is not None:
                connection.execute(sa.schema.CreateSchema(schema, if_not_exists=True))
            self._t.metadata.create_all(connection)
            about = {row.key: row.value for row in connection.execute(sa.select(self._t.about))}
            if not about:
                about = {"scope": uuid.uuid4().hex, "version": str(LEDGER_VERSION)}
                connection.execute(
                    sa.insert(self._t.about), [{"key": key, "value": value} for key, value in about.items()]
                )
            if int(about["version"]) != LEDGER_VERSION:
                raise LedgerError(
                    "PEN-LGR-006",
                    f"this ledger is of version {about['version']}; this Penstock reads version {LEDGER_VERSION}.",
                    "Run the Penstock release that wrote it, or start with a new `data_dir`.",
                )
        self.scope = about["scope"]

    @property
    def names(self) -> Tables:
        """The ledger's tables, for those who keep books in them."""
        return self._t

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        with self._engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        with self._engine.connect() as connection:
            yield connection.execution_options(penstock_reads=True)


def _delivery(batch: Batch, receipt: TableReceipt) -> dict[str, object]:
    status = LOADED if receipt.failures is None else LOADED_IN_PART
    return {
        "route": batch.route, "number": batch.number, "target": receipt.table, "rows": receipt.rows, "status": status
    }  # fmt: skip


def _sqlite(url: str) -> sa.Engine:
    engine = sa.create_engine(url, connect_args={"timeout": 30, "check_same_thread": False})

    @sa.event.listens_for(engine, "connect")
    def _settings(connection: Any, _: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA busy_timeout=30000")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        # A transaction that reads first and writes later can fail half way with "database is locked" instead of
        # waiting: one that means to write takes the write lock at once.
        reads = connection.get_execution_options().get("penstock_reads")
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    return engine


def _server(url: str) -> sa.Engine:
    try:
        parsed = sa.make_url(url)
        if parsed.drivername in ("postgres", "postgresql"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        return sa.create_engine(parsed, pool_pre_ping=True)
    except (SQLAlchemyError, ModuleNotFoundError) as error:
        raise LedgerError(
            "PEN-LGR-007",
            f"the ledger's URL cannot be used: {error}.",
            "Write it as postgresql://user:password@host/database.",
        ) from error


def _committed(positions: Mapping[int, Position], partition: int) -> int:
    return positions[partition].committed if partition in positions else 0


def _text(ranges: Mapping[int, tuple[int, int]]) -> str:
    return json.dumps({str(partition): [start, end] for partition, (start, end) in sorted(ranges.items())})


def _ranges(text: str) -> dict[int, tuple[int, int]]:
    return {int(partition): (start, end) for partition, (start, end) in json.loads(text).items()}
