"""Schema changes as values: they can be planned, printed and tested without a database, and then applied.

A plan only ever adds. Columns that a table has and a batch has not are left alone; nothing is dropped or retyped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TypedColumn:
    """A column of a target table: its name and its type in the target's own words."""

    name: str
    type: str


@dataclass(frozen=True)
class CreateTable:
    table: str
    columns: tuple[TypedColumn, ...]


@dataclass(frozen=True)
class AddColumn:
    table: str
    column: TypedColumn


Operation = CreateTable | AddColumn


def patch(table: str, wanted: Sequence[TypedColumn], existing: Mapping[str, str] | None) -> list[Operation]:
    """What must be done so that ``table`` has all ``wanted`` columns.

    ``existing`` is the real table's types by column name, ``None`` if there is no table. Names are compared without
    regard to case, as SQL engines do; ours are in lower case.
    """
    if existing is None:
        return [CreateTable(table, tuple(wanted))]
    there = {name.lower() for name in existing}
    return [AddColumn(table, column) for column in wanted if column.name not in there]
