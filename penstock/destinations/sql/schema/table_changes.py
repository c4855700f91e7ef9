"""Tables and their changes as values: they can be planned, printed and tested without a database, and then applied.

A plan only ever adds: columns that a table has and a batch has not are left alone, nothing is dropped. A column's type
changes only when ``widen`` asks for it, and a key only if it bears our name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.flatten.column_naming import column_name


@dataclass(frozen=True)
class TypedColumn:
    """A column of a target table: its name and its type in the target's own words."""

    name: str
    type: str


@dataclass(frozen=True)
class Key:
    """A primary key. ``name`` tells whether it is ours; targets without named keys have an empty one."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table as it really is. ``columns`` are by the name that we use for them, which is in lower case."""

    name: str
    columns: Mapping[str, TypedColumn]
    key: Key | None = None
    computed: frozenset[str] = frozenset()
    """Names of further columns, which the engine fills by itself: nothing can be put there."""
    fixed: frozenset[str] = frozenset()
    """Columns that get their value with their row and keep it."""


@dataclass(frozen=True)
class CreateTable:
    table: str
    columns: tuple[TypedColumn, ...]
    key: Key | None = None


@dataclass(frozen=True)
class AddColumn:
    table: str
    column: TypedColumn


@dataclass(frozen=True)
class WidenColumn:
    table: str
    column: TypedColumn
    """The column with its new type."""
    was: str


@dataclass(frozen=True)
class SetKey:
    table: str
    key: Key


@dataclass(frozen=True)
class DropKey:
    table: str
    key: Key


@dataclass(frozen=True)
class Comment:
    """Words about a table, or about one of its columns."""

    table: str
    text: str
    column: str | None = None


Operation = CreateTable | AddColumn | WidenColumn | SetKey | DropKey | Comment


def new_columns(operation: Operation) -> Sequence[TypedColumn]:
    """The columns that come with a change."""
    match operation:
        case CreateTable(_, columns):
            return columns
        case AddColumn(_, column):
            return (column,)
        case _:
            return ()


@dataclass(frozen=True)
class Wanted:
    """What a batch asks of a table."""

    columns: Sequence[TypedColumn]
    key: Key | None = None
    widened: Sequence[TypedColumn] = ()
    """Columns that exist and must become wider, with the types they must have."""
    frozen: bool = False
    max_columns: int = 1_000
    first: Collection[str] = ()
    """Columns that are never left out for others, if not all can be had: those of a key."""
    spare: TypedColumn = field(kw_only=True)
    """The column for what finds no place. It is added when it is needed, whatever else may not be."""
    spare_needed: bool = False


def patch(table: str, wanted: Wanted, existing: Table | None) -> list[Operation]:
    """What must be done so that ``table`` (``existing``, if there is one) can take the batch."""
    first = {*wanted.first, *(wanted.key.columns if wanted.key else ())}
    if existing is None:
        chosen = within(wanted.max_columns, wanted.columns, first)
        spare = [wanted.spare] if wanted.spare_needed or len(chosen) < len(wanted.columns) else []
        return [CreateTable(table, (*chosen, *spare), wanted.key)]
    operations: list[Operation] = []
    new = [column for column in wanted.columns if column.name not in existing.columns]
    room = 0 if wanted.frozen else max(0, wanted.max_columns - len(existing.columns.keys() - {wanted.spare.name}))
    taken = within(room, new, first)
    operations += [AddColumn(table, column) for column in taken]
    if wanted.spare.name not in existing.columns and (wanted.spare_needed or len(taken) < len(new)):
        operations.append(AddColumn(table, wanted.spare))
    for column in wanted.widened:
        there = existing.columns[column.name]
        operations.append(WidenColumn(table, TypedColumn(there.name, column.type), there.type))
    if wanted.key and not set(wanted.key.columns) <= existing.columns.keys() | {column.name for column in taken}:
        return operations  # a key of columns that are still to come
    return operations + _key_changes(table, wanted.key, existing)


def within(room: int, columns: Sequence[TypedColumn], first: Collection[str]) -> list[TypedColumn]:
    """As many columns as there is room for, in their order; those named ``first`` are never left out for others."""
    if len(columns) <= room:
        return list(columns)
    ranked = sorted(range(len(columns)), key=lambda place: (columns[place].name not in first, place))
    return [columns[place] for place in sorted(ranked[:room])]


def _key_changes(table: str, key: Key | None, existing: Table) -> list[Operation]:
    """Bring our own key to what is wanted. A key of another name is its owner's."""
    there = existing.key
    if there is not None and not is_ours(there):
        return []
    if there is not None and (key is None or there.columns != key.columns):
        return [DropKey(table, there), *([SetKey(table, key)] if key else [])]
    return [SetKey(table, key)] if there is None and key is not None else []


OUR_KEY = "_penstock_key"


def our_key(table: str, columns: Sequence[str], max_name: int) -> Key | None:
    """The key that a table gets from us, with a name by which we know it again, and that no other table's key has."""
    return Key(column_name([table], max_name - len(OUR_KEY)) + OUR_KEY, tuple(columns)) if columns else None


def is_ours(key: Key) -> bool:
    return key.name.lower().endswith(OUR_KEY)
