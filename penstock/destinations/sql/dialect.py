"""How one engine spells things. A new engine is a short table of differences, not new logic."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.destinations.sql.operations import (
    AddColumn,
    CreateTable,
    DropKey,
    Key,
    Operation,
    SetKey,
    Table,
    TypedColumn,
    WidenColumn,
)
from penstock.errors import PenstockError
from penstock.flatten.casts import Cast, parse_cast
from penstock.flatten.column import Column
from penstock.flatten.types import InnerType, promote
from penstock.flatten.unmapped import UNMAPPED

_TYPE = re.compile(r"[a-z_][a-z0-9_ ]*(\(\s*\d+\s*(,\s*\d+\s*)?\))?[a-z ]*(\[\])*", re.IGNORECASE)


@dataclass(frozen=True)
class Dialect:
    types: Mapping[InnerType, str]
    """The engine's type for each inner type, spelled as its catalogue spells it."""
    json_type: str
    """The type of the column that takes what fits nowhere else."""
    max_name: int
    """Longest name, in characters."""
    spellings: Mapping[str, str] = field(default_factory=dict)
    """Types that people ask for by another engine's word, or that mean something else here."""
    quote: str = '"'
    reserved: frozenset[str] = frozenset()
    """Names that no column can have, quoted or not; fields of such a name are kept with what fits nowhere."""
    takes_nul: bool = True
    """Whether text may hold U+0000; where not, it is taken out."""
    widens: frozenset[tuple[InnerType, InnerType]] = frozenset()
    """From which type to which a column can be changed in place."""
    converts_numbers: bool = False
    """Whether the engine makes decimals of the text of doubles and integers, exactly; where not, we do."""
    has_keys: bool = True
    """Whether tables get their key as a constraint; where not, merging goes by the config's word alone."""

    def identifier(self, name: str) -> str:
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote

    def names(self, names: Sequence[str]) -> str:
        return ", ".join(map(self.identifier, names))

    def relation(self, table: str) -> str:
        """A table where statements name it; engines with schemas put theirs in front."""
        return self.identifier(table)

    # Types

    def column(self, column: Column) -> TypedColumn:
        """What the engine must have for a column of a header: the type a step asked for, or that of its values."""
        if column.name == UNMAPPED:
            return self.spare
        return TypedColumn(column.name, self.cast_type(column.sql_type) if column.sql_type else self.types[column.type])

    @property
    def spare(self) -> TypedColumn:
        return TypedColumn(UNMAPPED, self.json_type)

    def spare_values(self, text: pa.Array) -> pa.Array:
        """JSON for the spare column, as the engine keeps it without loss. Most keep any."""
        return text

    def cast_type(self, asked: str) -> str:
        """The engine's word for a type that a step asked for. It goes into statements as it is, so it must be one."""
        if not _TYPE.fullmatch(asked):
            raise not_a_type(asked)
        return self.spellings.get(" ".join(asked.lower().split()), asked)

    def target(self, sql_type: str) -> Cast:
        """What values must be to go into a real column of this type."""
        return parse_cast(sql_type)

    def wider(self, real: str, values: InnerType) -> str | None:
        """The type that a column must have to take these values too, if the engine can change it to that."""
        there = self.target(real).type
        if there is None:
            return None
        common = promote(there, values)
        return self.types[common] if (there, common) in self.widens else None

    # Statements

    def render(self, operation: Operation) -> str:
        match operation:
            case CreateTable(table, columns, key):
                return f"CREATE TABLE IF NOT EXISTS {self.relation(table)} ({self._definitions(columns, key)})"
            case AddColumn(table, column):
                return f"ALTER TABLE {self.relation(table)} ADD COLUMN {self._definition(column)}"
            case WidenColumn(table, column, was):
                return self.widening(table, column, was)
            case SetKey(table, key):
                return f"ALTER TABLE {self.relation(table)} ADD {self._constraint(key)}"
            case DropKey(table, key):
                return f"ALTER TABLE {self.relation(table)} DROP CONSTRAINT {self.identifier(key.name)}"

    def widening(self, table: str, column: TypedColumn, was: str) -> str:
        name = self.identifier(column.name)
        return f"ALTER TABLE {self.relation(table)} ALTER COLUMN {name} TYPE {column.type}"

    def lost_by(self, widening: WidenColumn) -> str | None:
        """A query that gives a row if the change would round a value; ``None`` if it never does."""
        before, after = self.target(widening.was), self.target(widening.column.type)
        if before.type is not InnerType.INT64 or after.type is not InnerType.FLOAT64 or after.precision:
            return None
        name, most = self.identifier(widening.column.name), 2**53
        return f"SELECT 1 FROM {self.relation(widening.table)} WHERE {name} > {most} OR {name} < -{most} LIMIT 1"

    def merge(self, table: Table, staged: str, columns: Sequence[str], key: Sequence[str], version: str | None) -> str:
        """The statement that takes the rows of ``staged`` (a quoted relation, each key once) into a table.

        A column that a row does not carry is NULL in ``staged`` and keeps its value.
        """
        real = {name: self.identifier(table.columns[name].name) for name in columns}
        keys = [real[name] for name in key]
        same = " AND ".join(f"t.{name} = s.{name}" for name in keys)
        changes = [
            f"{name} = {self.merged(name, real.get(version or ''))}" for name in real.values() if name not in keys
        ]
        matched = f" WHEN MATCHED THEN UPDATE SET {', '.join(changes)}" if changes else ""
        listed = ", ".join(real.values())
        values = ", ".join(f"s.{name}" for name in real.values())
        return (
            f"MERGE INTO {self.relation(table.name)} AS t USING {staged} AS s ON {same}{matched}"
            f" WHEN NOT MATCHED THEN INSERT ({listed}) VALUES ({values})"
        )

    def merged(self, name: str, version: str | None) -> str:
        """The new value of a column, of ``t`` (the table) and ``s`` (what comes)."""
        there, comes = f"t.{name}", f"s.{name}"
        spare = name == self.identifier(UNMAPPED)
        value = self.both_kept(there, comes) if spare else f"COALESCE({comes}, {there})"
        if version is None:
            return value
        newer = f"t.{version} IS NULL OR s.{version} >= t.{version}"
        return f"CASE WHEN {newer} THEN {value} ELSE t.{name} END"

    def both_kept(self, there: str, comes: str) -> str:
        """What a row keeps aside, with what comes to it: by field, the newer value of each, where the engine can."""
        return f"COALESCE({comes}, {there})"

    def _definitions(self, columns: Sequence[TypedColumn], key: Key | None) -> str:
        parts = [self._definition(column) for column in columns]
        return ", ".join([*parts, self._constraint(key)] if key else parts)

    def _constraint(self, key: Key) -> str:
        return f"CONSTRAINT {self.identifier(key.name)} PRIMARY KEY ({self.names(key.columns)})"

    def _definition(self, column: TypedColumn) -> str:
        return f"{self.identifier(column.name)} {column.type}"


def not_a_type(asked: str, reason: str = "") -> PenstockError:
    return PenstockError(
        "PEN-DST-020",
        f"a step casts to '{asked}', which is no type here{': ' + reason if reason else ''}.",
        "Cast to a type such as bigint, numeric(12,2), timestamptz or text.",
    )
