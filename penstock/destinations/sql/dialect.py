"""How one engine spells things. A new engine is a short table of differences, not new logic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.destinations.sql.operations import AddColumn, CreateTable, Operation, TypedColumn
from penstock.errors import PenstockError
from penstock.flatten.column import Column
from penstock.flatten.types import InnerType
from penstock.flatten.unmapped import UNMAPPED

_TYPE = re.compile(r"[a-z_][a-z0-9_ ]*(\(\s*\d+\s*(,\s*\d+\s*)?\))?[a-z ]*(\[\])*", re.IGNORECASE)


@dataclass(frozen=True)
class Dialect:
    types: Mapping[InnerType, str]
    """The engine's type for each inner type, spelled as its catalogue spells it."""
    json_type: str
    """The type of the column that takes what fits nowhere else."""
    spellings: Mapping[str, str] = field(default_factory=dict)
    """Types that people ask for by another engine's word, or that mean something else here."""
    quote: str = '"'

    def identifier(self, name: str) -> str:
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote

    def column(self, column: Column) -> TypedColumn:
        """What the engine must have for a column of a header: the type a step asked for, or that of its values."""
        if column.name == UNMAPPED:
            return TypedColumn(column.name, self.json_type)
        return TypedColumn(column.name, self.cast_type(column.sql_type) if column.sql_type else self.types[column.type])

    def cast_type(self, asked: str) -> str:
        """The engine's word for a type that a step asked for. It goes into statements as it is, so it must be one."""
        if not _TYPE.fullmatch(asked):
            raise not_a_type(asked)
        return self.spellings.get(" ".join(asked.lower().split()), asked)

    def render(self, operation: Operation) -> str:
        match operation:
            case CreateTable(table, columns):
                return (
                    f"CREATE TABLE IF NOT EXISTS {self.identifier(table)} ({', '.join(map(self._definition, columns))})"
                )
            case AddColumn(table, column):
                return f"ALTER TABLE {self.identifier(table)} ADD COLUMN {self._definition(column)}"

    def _definition(self, column: TypedColumn) -> str:
        return f"{self.identifier(column.name)} {column.type}"


def not_a_type(asked: str, reason: str = "") -> PenstockError:
    return PenstockError(
        "PEN-DST-020",
        f"a step casts to '{asked}', which is no type here{': ' + reason if reason else ''}.",
        "Cast to a type such as bigint, numeric(12,2), timestamptz or text.",
    )
