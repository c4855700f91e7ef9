"""What the ledger knows of a route's tables: which JSON path fills which column, every schema change, and the locks.

A destination is given a ``RouteBook`` while it writes.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import sqlalchemy as sa

from penstock import faults
from penstock.destinations.contract import Batch, HeldLock, Owner, TableBook
from penstock.engine import events
from penstock.engine.ledger import Ledger
from penstock.engine.ledger.database import put_row, put_rows
from penstock.engine.ledger.target_locks import LEASE, hold_lock

_CLIENTS = uuid.UUID("6f1b7f5e-2f0a-4d0e-9a52-7c1e8a3b9d44")
"""The namespace of the ids under which routes are known to targets."""


@dataclass(frozen=True)
class KnownColumn:
    """A column that was filled, the JSON paths that filled it (in order of appearance), and since when."""

    table: str
    name: str
    paths: tuple[str, ...]
    since: float


@dataclass(frozen=True)
class SchemaChange:
    number: int
    at: float
    table: str
    statement: str


@dataclass(frozen=True)
class Look:
    """The shape of a table at the last look, in the destination's own format, and the changes noted since then."""

    shape: str
    noted: Sequence[str]


class RouteBook(TableBook):
    """``patience`` is how long it waits for a lock, ``lease`` how long a killed holder keeps one; in seconds."""

    def __init__(self, ledger: Ledger, route: str, patience: float = LEASE, lease: float = LEASE) -> None:
        self._ledger = ledger
        self._t = ledger.names
        self._route = route
        self._patience = patience
        self._lease = lease
        self.changed_tables: set[str] = set()
        """The tables of which a change was noted through this object."""

    def lock(self, name: str, lease: float | None = None) -> AbstractContextManager[HeldLock]:
        """Hold a lock over all engines that share the ledger; see ``penstock.engine.ledger.target_locks``."""
        return hold_lock(self._ledger, name, self._patience, self._lease if lease is None else lease)

    def client_id(self) -> str:
        return uuid.uuid5(_CLIENTS, f"{self._ledger.scope}/{self._route}").hex

    def note_progress(self, batch: Batch, progress: Mapping[str, str]) -> None:
        with self._ledger.writing() as connection:
            self._note_progress(connection, batch, progress)

    def note_progress_at_once(self, batch: Batch, progress: Mapping[str, str]) -> bool:
        with self._ledger.writing_at_once() as connection:
            if connection is not None:
                self._note_progress(connection, batch, progress)
        return connection is not None

    def _note_progress(self, connection: sa.Connection, batch: Batch, progress: Mapping[str, str]) -> None:
        place = {"route": batch.route, "number": batch.number}
        t = self._t.progress
        rows = [{**place, "name": name, "state": state} for name, state in progress.items() if state]
        forgotten = [name for name, state in progress.items() if not state]
        if rows:
            put_rows(connection, t, rows)
        if forgotten:
            connection.execute(sa.delete(t).filter_by(**place).where(t.c.name.in_(forgotten)))

    def progress(self, batch: Batch) -> dict[str, str]:
        t = self._t.progress
        found = self._ledger.rows(sa.select(t.c.name, t.c.state).filter_by(route=batch.route, number=batch.number))
        return {row.name: row.state for row in found}

    def note_change(self, table: str, statement: str) -> None:
        faults.reach("ledger.schema_change")
        self.changed_tables.add(table)
        with self._ledger.writing() as connection:
            self._note(connection, table, statement)

    def save_shape(self, table: str, shape: str, found: Sequence[str] = ()) -> None:
        """Save the shape of a table, and note the changes that were found at this look."""
        place = {"route": self._route, "target": table}
        shapes, numbers = self._t.shapes, self._t.changes.c.number
        with self._ledger.writing() as connection:
            for statement in found:
                self._note(connection, table, statement)
            last = connection.execute(sa.select(sa.func.max(numbers))).scalar() or 0
            values = {"shape": shape, "last_change": last}
            put_row(connection, shapes, place, values, values)

    def last_look(self, table: str) -> Look | None:
        place = {"route": self._route, "target": table}
        changes = self._t.changes
        with self._ledger.reading() as connection:
            seen = connection.execute(sa.select(self._t.shapes).filter_by(**place)).first()
            if seen is None:
                return None
            since = sa.select(changes.c.statement).filter_by(**place).where(changes.c.number > seen.last_change)
            return Look(seen.shape, list(connection.execute(since).scalars()))

    def _note(self, connection: sa.Connection, table: str, statement: str) -> None:
        connection.execute(
            sa.insert(self._t.changes).values(at=time.time(), route=self._route, target=table, statement=statement)
        )

    def note_paths(self, table: str, columns: Mapping[str, Sequence[str]]) -> None:
        known = {column.name: column.paths for column in self.columns(table)}
        new = {
            name: tuple(dict.fromkeys((*known.get(name, ()), *paths)))
            for name, paths in columns.items()
            if not set(paths) <= set(known.get(name, ()))
        }
        if not new:
            return
        place = {"route": self._route, "target": table}
        with self._ledger.writing() as connection:
            for name, paths in new.items():
                values = {"paths": json.dumps(paths)}
                new_values = {**values, "since": time.time()}
                put_row(connection, self._t.columns, {**place, "name": name}, values, new_values)

    def filled_tables(self) -> list[str]:
        c = self._t.columns.c
        query = sa.select(c.target).where(c.route == self._route).distinct()
        with self._ledger.reading() as connection:
            return list(connection.execute(query).scalars())

    def forget_tables(self, tables: Collection[str]) -> None:
        """Take these tables for ones that were never filled."""
        c = self._t.columns.c
        with self._ledger.writing() as connection:
            connection.execute(sa.delete(self._t.columns).where(c.route == self._route, c.target.in_(tables)))

    def note_made_again(self, table: str) -> None:
        events.table_made_again(self._route, table)

    def former_selves(self) -> list[Owner]:
        return [Owner(scope, name) for scope, name in self._ledger.adopted_histories(self._route)]

    def overflowing(self, batch: Batch) -> list[str]:
        return self._ledger.overflowing(batch)

    def note_overflow(self, batch: Batch, tables: Collection[str], limit: int, into: str) -> None:
        self._ledger.note_overflow(batch, tables)
        events.tables_overflow(self._route, limit, into, sorted(tables))

    def columns(self, table: str | None = None) -> list[KnownColumn]:
        """The columns of a table, or of all, oldest first."""
        c = self._t.columns.c
        query = sa.select(self._t.columns).where(c.route == self._route)
        if table is not None:
            query = query.where(c.target == table)
        rows = self._ledger.rows(query.order_by(c.target, c.since, c.name))
        return [KnownColumn(row.target, row.name, tuple(json.loads(row.paths)), row.since) for row in rows]

    def changes(self, last: int | None = None) -> list[SchemaChange]:
        """The schema changes that were made, oldest first."""
        c = self._t.changes.c
        query = sa.select(self._t.changes).where(c.route == self._route).order_by(c.number.desc())
        rows = self._ledger.rows(query if last is None else query.limit(last))
        return [SchemaChange(row.number, row.at, row.target, row.statement) for row in reversed(rows)]
