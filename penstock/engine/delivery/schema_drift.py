"""Schema changes that were made but not recorded: the engine was killed, or lost the ledger, right after a change.

Before a try the ledger holds the shapes of its tables. If the try does not finish, the next one compares them with the
tables as they are and records the differences in the log of changes: as found, not as made, because somebody else may
have changed the table at the same time. A look costs a connection, so each table is read at the start, after a change,
and after a try that failed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence

from penstock.destinations.contract import AnyDestination
from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.schema.schema_operations import (
    AddColumn,
    CreateTable,
    DropKey,
    Key,
    SetKey,
    Table,
    TypedColumn,
    WidenColumn,
    is_ours,
)
from penstock.engine.ledger.table_mappings import RouteBook
from penstock.errors import RefusedError, TransientError

FOUND = "-- found when batch {number} was tried again: made by the try before it, or by somebody else"


class DriftDetector:
    """Knows the tables whose shape is in the ledger. For one route, in one process."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def before_try(
        self, destination: AnyDestination, tables: Collection[str], book: RouteBook, number: int, again: bool
    ) -> None:
        """Record the shape of each table of a batch that is not known for sure. ``again``: the batch was tried before,
        and may have made what changed since the last look."""
        unsure = [name for name in tables if name not in self._known]
        target = destination.sql()
        if not unsure or target is None:
            return
        unsure = _changeable_tables(unsure, book.filled_tables(), target.config.max_tables)
        with target.read_only_session() as session:
            for name in unsure:
                try:
                    real = None if session is None else session.table(name)
                except (TransientError, RefusedError):
                    continue  # the write will meet the same error, and report it for this table alone
                last = book.last_look(name) if again else None
                made = () if last is None else drift_statements(target.dialect, name, last.shape, real, last.noted)
                book.save_shape(
                    name, to_text(real), [f"{statement} {FOUND.format(number=number)}" for statement in made]
                )
                self._known.add(name)

    def after_try(self, book: RouteBook, finished: bool) -> None:
        """``finished``: the try ended well, so the ledger has the shape of every table but those that it changed."""
        self._known = self._known - book.changed_tables if finished else set()


def _changeable_tables(tables: Sequence[str], filled: Collection[str], most: int) -> list[str]:
    """The tables that may be changed, of those that records name: whoever makes up names makes up many."""
    new = [name for name in tables if name not in filled]
    return [name for name in tables if name in filled] + new[: max(0, most - len(filled))]


def drift_statements(dialect: Dialect, name: str, before: str, now: Table | None, noted: Sequence[str]) -> list[str]:
    """The statements that turn a table as it was into what it is now, without those that were ``noted``."""
    if now is None:
        return []
    was = from_text(name, before)
    if was is None:
        # One statement creates a table.
        created = CreateTable(name, tuple(now.columns.values()), _our_key(now))
        return [] if noted else [dialect.render(created)]
    columns = [
        dialect.render(change)
        for change in _column_changes(was, now)
        if not any(dialect.identifier(change.column.name) in statement for statement in noted)
    ]
    keys = [dialect.render(change) for change in _key_changes(was, now)]
    return columns + [statement for statement in keys if statement not in noted]


def _column_changes(was: Table, now: Table) -> Iterator[AddColumn | WidenColumn]:
    for name, column in now.columns.items():
        if name not in was.columns:
            yield AddColumn(now.name, column)
        elif was.columns[name].type != column.type:
            yield WidenColumn(now.name, column, was.columns[name].type)


def _key_changes(was: Table, now: Table) -> Iterator[DropKey | SetKey]:
    before, after = _our_key(was), _our_key(now)
    if before == after:
        return
    if before is not None:
        yield DropKey(now.name, before)
    if after is not None:
        yield SetKey(now.name, after)


def _our_key(table: Table) -> Key | None:
    return table.key if table.key is not None and is_ours(table.key) else None


def to_text(table: Table | None) -> str:
    if table is None:
        return json.dumps(None)
    columns = {name: [column.name, column.type] for name, column in table.columns.items()}
    return json.dumps({"columns": columns, "key": table.key and [table.key.name, list(table.key.columns)]})


def from_text(name: str, text: str) -> Table | None:
    kept = json.loads(text)
    if kept is None:
        return None
    columns = {column: TypedColumn(*words) for column, words in kept["columns"].items()}
    return Table(name, columns, Key(kept["key"][0], tuple(kept["key"][1])) if kept["key"] else None)
