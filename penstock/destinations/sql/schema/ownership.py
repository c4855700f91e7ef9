"""Which tables of a target are a route's own, and where the rows of the others go.

A table is ours if the target says so (``_penstock_tables``, where a table is noted before it is made), or if a batch of
ours is marked there, or if the ledger has seen this route fill it at this target: what was loaded by releases that kept
no such note goes on. Any other table that is there is somebody else's, and is written only if the config adopts it.

A route makes so many tables and no more. What is meant for further ones goes into one table together. Which tables of a
batch do so is noted in the ledger before anything is written, and stays: rows that are there already would be written a
second time elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from penstock import faults
from penstock.destinations.contract import Batch, TableBook
from penstock.destinations.sql.session import REGISTRY, Session
from penstock.destinations.sql.stage.allowed_tables import OVERFLOW_PREFIX
from penstock.flatten.column_naming import column_name

NOT_OURS = "table_not_ours"
"""The code of rows whose table somebody else has made."""


@dataclass(frozen=True)
class Limits:
    """What a config says of the tables that a route may write. Without ``most`` it may make any number."""

    adopted: frozenset[str] = frozenset()
    most: int | None = None


@dataclass(frozen=True)
class Placement:
    """Where the tables of a batch go: those that are not named here are the route's own."""

    foreign: frozenset[str] = frozenset()
    overflowing: frozenset[str] = frozenset()


class OwnTables:
    """What one process has learnt of the tables at one target."""

    def __init__(self) -> None:
        self._settled: set[str] = set()
        self._loaded_before: frozenset[str] | None = None

    def place(
        self, session: Session, limits: Limits, batch: Batch, tables: Collection[str], book: TableBook
    ) -> Placement:
        """Settle where the rows of these tables go, and note the tables that are to be made."""
        new = [table for table in tables if table not in self._settled and table not in limits.adopted]
        if not new:
            return Placement()
        noted = book.overflowing(batch)
        found = _Found(frozenset(noted) & frozenset(new))
        self._sort(session, limits, batch, [table for table in new if table not in found.overflowing], book, found)
        beyond = found.overflowing - frozenset(noted)
        if beyond:
            book.to_overflow(batch, beyond, limits.most or 0, overflow_table(batch.route, session.dialect.max_name))
        faults.reach("destination.tables_placed")
        self._settled.update(table for table in new if table not in found.foreign | found.overflowing)
        return Placement(found.foreign, found.overflowing)

    def look(self, session: Session, limits: Limits, route: str, tables: Sequence[str]) -> Placement:
        """The same as far as the target alone can tell, and without a change: for plans."""
        own = _own(session.registered(), route) | {name for _, _, name in _tables_marked(session)}
        foreign: set[str] = set()
        beyond: set[str] = set()
        for table in tables:
            if table in own or table in limits.adopted:
                continue
            if limits.most is not None and len(own) >= limits.most:
                beyond.add(table)
            elif session.exists(table):
                foreign.add(table)
            else:
                own.add(table)
        return Placement(frozenset(foreign), frozenset(beyond))

    def _sort(
        self, session: Session, limits: Limits, batch: Batch, tables: Sequence[str], book: TableBook, found: _Found
    ) -> None:
        before = self._before(session, batch, book)
        registered = session.registered()
        anybodys = {table for table, _ in registered}
        if all(table in anybodys for table in tables):
            return
        with session.patching(REGISTRY, book):
            registered = session.registered()
            anybodys = {table for table, _ in registered}
            own = _own(registered, batch.route) | before
            made: list[str] = []
            for table in tables:
                if table in anybodys:
                    continue
                if table not in before:
                    if limits.most is not None and len(own) >= limits.most:
                        found.overflowing |= {table}
                        continue
                    if session.exists(table):
                        found.foreign |= {table}
                        continue
                made.append(table)
                own.add(table)
            if made:
                session.register(made, batch.route)

    def _before(self, session: Session, batch: Batch, book: TableBook) -> frozenset[str]:
        """Tables that were loaded by this route, or by others, before tables were noted at the target."""
        if self._loaded_before is None:
            marks = _tables_marked(session)
            here = any((scope, route) == (batch.scope, batch.route) for scope, route, _ in marks)
            # What the ledger says is of the target that was loaded then: another one may be in its place.
            recorded = book.filled_tables() if here else ()
            self._loaded_before = frozenset([*(table for _, _, table in marks), *recorded])
        return self._loaded_before


@dataclass
class _Found:
    overflowing: frozenset[str]
    foreign: frozenset[str] = field(default=frozenset())


def overflow_table(route: str, max_name: int) -> str:
    """The table for what is meant for more tables than the route may make. No record can name it."""
    return column_name([OVERFLOW_PREFIX + route], max_name)


def not_ours(table: str) -> str:
    return (
        f"'{table}' was not made by Penstock, and is not written for that: if records are meant to go there, add it to"
        " `adopt` of the destination"
    )


def remarks(placement: Placement, route: str, most: int, max_name: int) -> Sequence[str]:
    """What a plan says of tables that are not written."""
    foreign = [f"-- fails: {not_ours(table)}" for table in sorted(placement.foreign)]
    into = overflow_table(route, max_name)
    beyond = [f"-- beyond max_tables ({most}), goes to {into}: {table}" for table in sorted(placement.overflowing)]
    return [*foreign, *beyond]


def _own(registered: Sequence[tuple[str, str]], route: str) -> set[str]:
    return {table for table, maker in registered if maker == route and not table.startswith(OVERFLOW_PREFIX)}


def _tables_marked(session: Session) -> list[tuple[str, str, str]]:
    """Marks of a mirror's further stretches bear the table's name with a number behind it."""
    marks: Mapping[tuple[str, str, str], None] = dict.fromkeys(
        (scope, route, table.partition("#")[0]) for scope, route, table in session.marked()
    )
    return list(marks)
