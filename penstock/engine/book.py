"""What the ledger knows of a route's tables: which JSON path fills which column, every schema change, and the locks.

``RouteBook`` is what a destination is given while it writes. Its locks hold for all engines that share the ledger, for
targets that have no locks of their own; a lock whose holder died is free again after ``LEASE`` seconds.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from penstock.engine.ledger import Ledger
from penstock.errors import TransientError

LEASE = 120.0
_LOOK_EVERY = 0.05


@dataclass(frozen=True)
class KnownColumn:
    """A column that was filled, the JSON paths that filled it (first come first), and since when."""

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


class RouteBook:
    def __init__(self, ledger: Ledger, route: str, patience: float = LEASE) -> None:
        self._ledger = ledger
        self._t = ledger.names
        self._route = route
        self._patience = patience

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Wait for the lock, for ``patience`` seconds at most; then it is a ``TransientError``."""
        holder = uuid.uuid4().hex
        deadline = time.monotonic() + self._patience
        while not self._taken(name, holder):
            if time.monotonic() > deadline:
                raise TransientError(
                    "PEN-LGR-008", f"another engine holds the lock on '{name}'.", "The batch is tried again."
                )
            time.sleep(_LOOK_EVERY)
        try:
            yield
        finally:
            with self._ledger.writing() as connection:
                connection.execute(sa.delete(self._t.locks).filter_by(name=name, holder=holder))

    def _taken(self, name: str, holder: str) -> bool:
        locks, now = self._t.locks, time.time()
        try:
            with self._ledger.writing() as connection:
                connection.execute(sa.delete(locks).where(locks.c.name == name, locks.c.until < now))
                connection.execute(sa.insert(locks).values(name=name, holder=holder, until=now + LEASE))
        except IntegrityError:
            return False
        return True

    def changed(self, table: str, statement: str) -> None:
        with self._ledger.writing() as connection:
            connection.execute(
                sa.insert(self._t.changes).values(at=time.time(), route=self._route, target=table, statement=statement)
            )

    def filled(self, table: str, columns: Mapping[str, Sequence[str]]) -> None:
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
                done = connection.execute(sa.update(self._t.columns).filter_by(**place, name=name).values(values))
                if done.rowcount == 0:
                    connection.execute(
                        sa.insert(self._t.columns).values(**place, name=name, **values, since=time.time())
                    )

    def columns(self, table: str | None = None) -> list[KnownColumn]:
        """The columns of a table, or of all, oldest first."""
        c = self._t.columns.c
        query = sa.select(self._t.columns).where(c.route == self._route)
        if table is not None:
            query = query.where(c.target == table)
        with self._ledger.reading() as connection:
            rows = connection.execute(query.order_by(c.target, c.since, c.name))
            return [KnownColumn(row.target, row.name, tuple(json.loads(row.paths)), row.since) for row in rows]

    def changes(self, last: int | None = None) -> list[SchemaChange]:
        """The schema changes that were made, oldest first."""
        c = self._t.changes.c
        query = sa.select(self._t.changes).where(c.route == self._route).order_by(c.number.desc())
        with self._ledger.reading() as connection:
            rows = connection.execute(query if last is None else query.limit(last)).all()
        return [SchemaChange(row.number, row.at, row.target, row.statement) for row in reversed(rows)]
