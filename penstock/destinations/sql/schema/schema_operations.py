"""Tables and their changes as values: they can be planned, printed and tested without a database, and then applied.

A plan only ever adds: columns that only the table has are left alone, nothing is dropped. A column's type changes only
when ``widen`` asks for it, and a key only if it has our name.
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
    """A primary key. ``name`` shows whether it is ours; it is empty where keys have no names."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table as it is at the target. ``columns`` are by our names for them, which are in lower case."""

    name: str
    columns: Mapping[str, TypedColumn]
    key: Key | None = None
    computed: frozenset[str] = frozenset()
    """Names of further columns, which the engine fills by itself and nobody can write."""
    fixed: frozenset[str] = frozenset()
    """Columns whose value is set when the row is inserted and cannot be updated."""


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
    """A comment on a table, or on one of its columns."""

    table: str
    text: str
    column: str | None = None


Operation = CreateTable | AddColumn | WidenColumn | SetKey | DropKey | Comment


def new_columns(operation: Operation) -> Sequence[TypedColumn]:
    match operation:
        case CreateTable(_, columns):
            return columns
        case AddColumn(_, column):
            return (column,)
        case _:
            return ()


@dataclass(frozen=True)
class Wanted:
    """What a batch needs of a table."""

    columns: Sequence[TypedColumn]
    key: Key | None = None
    widened: Sequence[TypedColumn] = ()
    """Existing columns that must become wider, with the types they need."""
    frozen: bool = False
    max_columns: int = 1_000
    first: Collection[str] = ()
    """Columns that come before others if there is no room for all: those of a key."""
    spare: TypedColumn = field(kw_only=True)
    """The column ``_unmapped``. It is added whenever it is needed, even if no other column may be."""
    spare_needed: bool = False


def plan_patch(table: str, wanted: Wanted, existing: Table | None) -> list[Operation]:
    """The changes that ``table`` (``existing``, if there is one) needs to hold the batch."""
    first = {*wanted.first, *(wanted.key.columns if wanted.key else ())}
    if existing is None:
        chosen = columns_within(wanted.max_columns, wanted.columns, first)
        spare = [wanted.spare] if wanted.spare_needed or len(chosen) < len(wanted.columns) else []
        return [CreateTable(table, (*chosen, *spare), wanted.key)]
    operations: list[Operation] = []
    new = [column for column in wanted.columns if column.name not in existing.columns]
    room = 0 if wanted.frozen else max(0, wanted.max_columns - len(existing.columns.keys() - {wanted.spare.name}))
    taken = columns_within(room, new, first)
    operations += [AddColumn(table, column) for column in taken]
    if wanted.spare.name not in existing.columns and (wanted.spare_needed or len(taken) < len(new)):
        operations.append(AddColumn(table, wanted.spare))
    for column in wanted.widened:
        there = existing.columns[column.name]
        operations.append(WidenColumn(table, TypedColumn(there.name, column.type), there.type))
    if wanted.key and not set(wanted.key.columns) <= existing.columns.keys() | {column.name for column in taken}:
        return operations  # the key has columns that no batch has brought yet
    return operations + _key_changes(table, wanted.key, existing)


def columns_within(room: int, columns: Sequence[TypedColumn], first: Collection[str]) -> list[TypedColumn]:
    """As many columns as there is room for, in their order; those named ``first`` have priority."""
    if len(columns) <= room:
        return list(columns)
    ranked = sorted(range(len(columns)), key=lambda place: (columns[place].name not in first, place))
    return [columns[place] for place in sorted(ranked[:room])]


def _key_changes(table: str, key: Key | None, existing: Table) -> list[Operation]:
    """The changes that make our own key the wanted one. A key with another name is somebody else's, and stays."""
    there = existing.key
    if there is not None and not is_ours(there):
        return []
    if there is not None and (key is None or there.columns != key.columns):
        return [DropKey(table, there), *([SetKey(table, key)] if key else [])]
    return [SetKey(table, key)] if there is None and key is not None else []


OUR_KEY = "_penstock_key"


def our_key(table: str, columns: Sequence[str], max_name: int) -> Key | None:
    """The key that we give a table, with a unique name by which we recognise it."""
    return Key(column_name([table], max_name - len(OUR_KEY)) + OUR_KEY, tuple(columns)) if columns else None


def is_ours(key: Key) -> bool:
    return key.name.lower().endswith(OUR_KEY)
