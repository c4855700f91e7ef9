"""Which tables of a target are a route's own, and where the rows of the others go.

A table is ours if the target says so (``_penstock_tables``, where a table is noted before it is made), or if it has a
mark of one of our batches, or if the ledger has seen this route fill it at this target: tables that were loaded by
releases without such notes stay ours. Any other existing table is somebody else's, and is written only if the config
adopts it.

A route makes a limited number of tables. Rows for further ones go together into one overflow table. The ledger notes
which tables of a batch overflow before anything is written, and that stays so: otherwise rows that are already written
would be written a second time elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock import faults
from penstock.destinations.contract import Batch, TableBook
from penstock.destinations.sql.session import REGISTRY, Session
from penstock.destinations.sql.stage.allowed_tables import OVERFLOW_PREFIX
from penstock.flatten.column_naming import column_name

NOT_OURS = "table_not_ours"
"""The code of rows whose table somebody else made."""


@dataclass(frozen=True)
class Limits:
    """What a config says about the tables that a route may write. Without ``most`` it may make any number."""

    adopted: frozenset[str] = frozenset()
    most: int | None = None


@dataclass(frozen=True)
class Placement:
    """Which tables of a batch are foreign and which overflow; all others are the route's own."""

    foreign: frozenset[str] = frozenset()
    overflowing: frozenset[str] = frozenset()


class OwnTables:
    """What one process knows about the tables at one target."""

    def __init__(self) -> None:
        self._settled: set[str] = set()
        self._loaded_before: _LoadedBefore | None = None

    def place_tables(
        self, session: Session, limits: Limits, batch: Batch, tables: Collection[str], book: TableBook
    ) -> Placement:
        """Decide where the rows of these tables go, and register the tables that are to be made."""
        new = [table for table in tables if table not in self._settled and table not in limits.adopted]
        if not new:
            return Placement()
        noted = book.overflowing(batch)
        found = _Found(frozenset(noted) & frozenset(new))
        self._claim(session, limits, batch, [table for table in new if table not in found.overflowing], book, found)
        beyond = found.overflowing - frozenset(noted)
        if beyond:
            book.note_overflow(batch, beyond, limits.most or 0, overflow_table(batch.route, session.dialect.max_name))
        faults.reach("destination.tables_placed")
        self._settled.update(table for table in new if table not in found.foreign | found.overflowing)
        return Placement(found.foreign, found.overflowing)

    def peek(self, session: Session, limits: Limits, route: str, tables: Sequence[str]) -> Placement:
        """The same as far as the target alone can tell, without changing anything: for plans."""
        registered, marked = session.registered_tables(), _marked_tables(session)
        anybodys = {table for table, _ in registered} | {table for _, _, table in marked}
        own = _tables_of_route(registered, route) | {table for _, maker, table in marked if maker == route}
        foreign: set[str] = set()
        beyond: set[str] = set()
        for table in tables:
            if table in anybodys or table in limits.adopted:
                continue
            if limits.most is not None and len(own) >= limits.most:
                beyond.add(table)
            elif session.is_name_taken(table):
                foreign.add(table)
            else:
                own.add(table)
        return Placement(frozenset(foreign), frozenset(beyond))

    def _claim(
        self, session: Session, limits: Limits, batch: Batch, tables: Sequence[str], book: TableBook, found: _Found
    ) -> None:
        before = self._loaded_before_registry(session, batch, book)
        registered = session.registered_tables()
        anybodys = {table for table, _ in registered}
        if all(table in anybodys for table in tables):
            return
        with session.lock_schema(REGISTRY, book):
            registered = session.registered_tables()
            anybodys = {table for table, _ in registered}
            own = _tables_of_route(registered, batch.route) | before.by_route
            made: list[str] = []
            for table in tables:
                if table in anybodys:
                    continue
                if table not in before.tables:
                    if limits.most is not None and len(own) >= limits.most:
                        found.overflowing |= {table}
                        continue
                    if session.is_name_taken(table):
                        found.foreign |= {table}
                        continue
                made.append(table)
                own.add(table)
            if made:
                session.register_tables(made, batch.route)

    def _loaded_before_registry(self, session: Session, batch: Batch, book: TableBook) -> _LoadedBefore:
        """Tables that this route, or others, loaded before tables were registered at the target."""
        if self._loaded_before is None:
            marks = _marked_tables(session)
            here = any((scope, route) == (batch.scope, batch.route) for scope, route, _ in marks)
            # The ledger speaks about the target that was loaded then, which another one may have replaced.
            recorded = book.filled_tables() if here else ()
            by_route = {table for _, route, table in marks if route == batch.route}.union(recorded)
            self._loaded_before = _LoadedBefore(by_route.union(table for _, _, table in marks), by_route)
        return self._loaded_before


class _LoadedBefore(NamedTuple):
    tables: Collection[str]
    by_route: Set[str]
    """Those that count for the route's limit."""


@dataclass
class _Found:
    overflowing: frozenset[str]
    foreign: frozenset[str] = field(default=frozenset())


def overflow_table(route: str, max_name: int) -> str:
    """The table for rows beyond the number of tables that the route may make. No record can name it."""
    return column_name([OVERFLOW_PREFIX + route], max_name)


def not_ours_message(table: str) -> str:
    return (
        f"'{table}' was not made by Penstock, so nothing is written to it: if records are meant to go there, add it to"
        " `adopt` of the destination"
    )


def placement_remarks(placement: Placement, route: str, most: int, max_name: int) -> Sequence[str]:
    """What a plan says about tables that are not written."""
    foreign = [f"-- fails: {not_ours_message(table)}" for table in sorted(placement.foreign)]
    into = overflow_table(route, max_name)
    beyond = [f"-- beyond max_tables ({most}), goes to {into}: {table}" for table in sorted(placement.overflowing)]
    return [*foreign, *beyond]


def _tables_of_route(registered: Sequence[tuple[str, str]], route: str) -> set[str]:
    return {table for table, maker in registered if maker == route and not table.startswith(OVERFLOW_PREFIX)}


def _marked_tables(session: Session) -> list[tuple[str, str, str]]:
    """Marks of a mirror's further stretches have the table's name followed by a number."""
    marks: Mapping[tuple[str, str, str], None] = dict.fromkeys(
        (scope, route, table.partition("#")[0]) for scope, route, table in session.marked_tables()
    )
    return list(marks)
