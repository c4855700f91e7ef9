"""Which tables of a target are a route's own, and where the rows of the others go.

A table is the route's if the target says so (``_penstock_tables``, where a table is noted before it is made), or if it
has a mark of one of its batches, or if the ledger has seen it fill the table at this target: tables that were loaded by
releases without such notes stay its own. A route is known by its name and its ledger; one that was renamed, or goes on
from what it delivered under another ledger, has the tables of that, too. What another route made is its own only if the
config says so, by listing it or by naming no other table: else whoever can name a table in a record could write into
those of every route. Any other existing table is somebody else's, and is written only if the config adopts it.

A route makes a limited number of tables. Rows for further ones go together into one overflow table. The ledger notes
which tables of a batch overflow before anything is written, and that stays so: otherwise rows that are already written
would be written a second time elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock import faults
from penstock.destinations.contract import Batch, Owner, TableBook
from penstock.destinations.sql.session import REGISTRY, Session
from penstock.destinations.sql.stage.allowed_tables import OVERFLOW_PREFIX, AllowedTables
from penstock.flatten.column_naming import column_name

NOT_OURS = "table_not_ours"
"""The code of rows whose table somebody else made."""


@dataclass(frozen=True)
class Limits:
    """What a config says about the tables that a route may write. Without ``most`` it may make any number."""

    adopted: frozenset[str] = frozenset()
    most: int | None = None
    shared: AllowedTables | None = None
    """Tables that it names, and that the route may write though another route made them."""

    of_others: frozenset[str] = frozenset()
    """Tables that other routes of the config name at the same target, and this one does not."""

    def shares(self, table: str) -> bool:
        return self.shared is not None and self.shared.allows(table)


@dataclass(frozen=True)
class Placement:
    """Which tables of a batch are foreign and which overflow; all others are the route's own."""

    foreign: Mapping[str, str] = field(default_factory=dict)
    """Each with the reason, as a sentence without a stop."""
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
        self._settled.update(table for table in new if table not in {*found.foreign, *found.overflowing})
        return Placement(found.foreign, found.overflowing)

    def peek(self, session: Session, limits: Limits, route: str, tables: Sequence[str]) -> Placement:
        """The same as far as the target alone can tell, without changing anything: for plans. A route is known by its
        name here."""
        marked = _by_table((table, Owner(scope, maker)) for scope, maker, table in _marked_tables(session))
        makers = _by_table(session.registered_tables())
        makers |= {table: found for table, found in marked.items() if table not in makers}
        own = {table for table, found in makers.items() if any(maker.route == route for maker in found)}
        own = {table for table in own if not table.startswith(OVERFLOW_PREFIX)}
        foreign: dict[str, str] = {}
        beyond: set[str] = set()
        for table in tables:
            if table in limits.of_others:
                foreign[table] = named_by_message(table)
                continue
            if table in own or table in limits.adopted or (table in makers and limits.shares(table)):
                continue
            if table in makers:
                foreign[table] = made_by_message(table, makers[table])
            elif limits.most is not None and len(own) >= limits.most:
                beyond.add(table)
            elif session.is_name_taken(table):
                foreign[table] = not_ours_message(table)
            else:
                own.add(table)
        return Placement(foreign, frozenset(beyond))

    def _claim(
        self, session: Session, limits: Limits, batch: Batch, tables: Sequence[str], book: TableBook, found: _Found
    ) -> None:
        me = Owner(batch.scope, batch.route)
        selves = {me, *book.former_selves()}
        before = self._loaded_before_registry(session, batch, book, selves)
        makers = _by_table(session.registered_tables())
        if all(me in makers.get(table, ()) and table not in limits.of_others for table in tables):
            return
        with session.lock_schema(REGISTRY, book):
            makers = _by_table(session.registered_tables())
            own = {
                table for table, found_makers in makers.items() if any(_is_one(maker, selves) for maker in found_makers)
            }
            # What is registered has the route that made it, whoever has loaded it since.
            own |= {table for table in before.by_route if table not in makers}
            own = {table for table in own if not table.startswith(OVERFLOW_PREFIX)}
            made: list[str] = []
            for table in tables:
                if table in limits.of_others:
                    found.foreign[table] = named_by_message(table)
                    continue
                others = makers.get(table) or before.by_others.get(table)
                if me in makers.get(table, ()) or (others and limits.shares(table)):
                    continue
                if table not in own and others:
                    found.foreign[table] = made_by_message(table, others)
                    continue
                if table not in own:
                    if limits.most is not None and len(own) >= limits.most:
                        found.overflowing |= {table}
                        continue
                    if session.is_name_taken(table):
                        found.foreign[table] = not_ours_message(table)
                        continue
                made.append(table)
                own.add(table)
            if made:
                session.register_tables(made, me)

    def _loaded_before_registry(
        self, session: Session, batch: Batch, book: TableBook, selves: Set[Owner]
    ) -> _LoadedBefore:
        """Tables that this route, or others, loaded before tables were registered at the target."""
        if self._loaded_before is None:
            marks = [(Owner(scope, route), table) for scope, route, table in _marked_tables(session)]
            here = any(owner.scope == batch.scope and owner in selves for owner, _ in marks)
            # The ledger speaks about the target that was loaded then, which another one may have replaced.
            recorded = book.filled_tables() if here else ()
            by_route = {table for owner, table in marks if owner in selves}.union(recorded)
            others = _by_table((table, owner) for owner, table in marks if table not in by_route)
            self._loaded_before = _LoadedBefore(by_route, others)
        return self._loaded_before


def _is_one(maker: Owner, selves: Set[Owner]) -> bool:
    """Whether this route made it. An older release did not note the ledger: there the name decides."""
    return maker in selves or (not maker.scope and any(owner.route == maker.route for owner in selves))


class _LoadedBefore(NamedTuple):
    by_route: Set[str]
    """Those that count for the route's limit."""
    by_others: Mapping[str, Set[Owner]]


@dataclass
class _Found:
    overflowing: frozenset[str]
    foreign: dict[str, str] = field(default_factory=dict)


def overflow_table(route: str, max_name: int) -> str:
    """The table for rows beyond the number of tables that the route may make. No record can name it."""
    return column_name([OVERFLOW_PREFIX + route], max_name)


def not_ours_message(table: str) -> str:
    return (
        f"'{table}' was not made by Penstock, so nothing is written to it: if records are meant to go there, add it to"
        " `adopt` of the destination"
    )


def made_by_message(table: str, makers: Collection[Owner]) -> str:
    names = ", ".join(sorted(f"{maker.route} of ledger {maker.scope[:8] or 'unknown'}" for maker in makers))
    return (
        f"'{table}' was made by another route ({names}), so nothing is written to it: if records are meant to go there,"
        " list it in `tables` of the destination"
    )


def named_by_message(table: str) -> str:
    return (
        f"'{table}' is a table that another route of the config names, so nothing is written to it: if records are"
        " meant to go there, list it in `tables` of the destination"
    )


def placement_remarks(placement: Placement, route: str, most: int, max_name: int) -> Sequence[str]:
    """What a plan says about tables that are not written."""
    foreign = [f"-- fails: {placement.foreign[table]}" for table in sorted(placement.foreign)]
    into = overflow_table(route, max_name)
    beyond = [f"-- beyond max_tables ({most}), goes to {into}: {table}" for table in sorted(placement.overflowing)]
    return [*foreign, *beyond]


def _by_table(pairs: Iterable[tuple[str, Owner]]) -> dict[str, set[Owner]]:
    """The routes of each table, from pairs of both."""
    found: dict[str, set[Owner]] = {}
    for table, owner in pairs:
        found.setdefault(table, set()).add(owner)
    return found


def _marked_tables(session: Session) -> list[tuple[str, str, str]]:
    """Marks of a mirror's further stretches have the table's name followed by a number."""
    marks: Mapping[tuple[str, str, str], None] = dict.fromkeys(
        (scope, route, table.partition("#")[0]) for scope, route, table in session.marked_tables()
    )
    return list(marks)
