"""The SQL dialect of one engine. A new engine is a short table of differences, not new logic."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.destinations.sql.load.merge_rows import AFTER, TURN, UPTO, Merge
from penstock.destinations.sql.load.row_limit import RowLimit
from penstock.destinations.sql.schema.schema_operations import (
    AddColumn,
    Comment,
    CreateTable,
    DropKey,
    Key,
    Operation,
    SetKey,
    Table,
    TypedColumn,
    WidenColumn,
)
from penstock.destinations.sql.type_names import TypeNames
from penstock.errors import PenstockError
from penstock.flatten.casts import Cast, covers, parse_cast
from penstock.flatten.column import Column
from penstock.flatten.inner_types import InnerType, promote
from penstock.flatten.unmapped.unmapped_column import UNMAPPED

_TYPE = re.compile(
    r"[a-z_][a-z0-9_ ]*(\(\s*\d+\s*(,\s*\d+\s*)?\))?[a-z ]*(\[\d*\])*"
    r'|((?:"[^"\0]+"|[a-z_]\w*)\.)?("[^"\0]+"|[a-z_]\w*)(\[\d*\])*',
    re.IGNORECASE | re.ASCII,
)
"""Nothing else goes into a statement: no unclosed bracket or quote, nothing after the type."""


@dataclass(frozen=True)
class Dialect(ABC):
    types: Mapping[InnerType, str]
    """The engine's type for each inner type, spelled as its catalogue spells it."""
    json_type: str
    """The type of the column ``_unmapped``."""
    max_name: int
    """Longest name, in characters."""
    spellings: Mapping[str, str] = field(default_factory=dict)
    """Other engines' names for types, and names that mean something else here."""
    known: TypeNames | None = None
    """All types that the engine has; without them, any word passes as a type."""
    quote: str = '"'
    adds_if_missing: bool = False
    """Whether a column can be added only if it is not there: where several writers may add it at once."""
    reserved: frozenset[str] = frozenset()
    """Names that no column can have, quoted or not; fields of such a name go to ``_unmapped``."""
    takes_nul: bool = True
    """Whether text may hold U+0000; if not, it is removed."""
    ignores_trailing_blanks: bool = False
    """Whether texts are equal that differ in blanks at their end only."""
    json_keeps_repeats: bool = True
    """Whether the JSON type keeps both values of a key that an object repeats."""
    widens: frozenset[tuple[InnerType, InnerType]] = frozenset()
    """Pairs of types: a column of the first can be changed in place to the second."""
    converts_numbers: bool = False
    """Whether the engine converts the text of doubles and integers to decimals exactly; if not, we do."""
    most_columns: int = 100_000
    """Most columns of a table, ``_unmapped`` included."""
    row_limit: RowLimit | None = None
    """The size limit of a row, for engines where a row of very many columns can exceed it."""
    has_keys: bool = True
    """Whether tables get their key as a constraint; if not, only the config says what to merge by."""

    def identifier(self, name: str) -> str:
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote

    def names(self, names: Sequence[str]) -> str:
        return ", ".join(map(self.identifier, names))

    def real_names(self, table: Table, columns: Sequence[str]) -> str:
        """Columns of a table, given by our names, as the table calls them."""
        return self.names([table.columns[name].name for name in columns])

    def relation(self, table: str) -> str:
        """A table as statements name it; engines with schemas put theirs in front."""
        return self.identifier(table)

    # Types

    def typed_column(self, column: Column) -> TypedColumn:
        """The engine's column for a column of a header: of the type a step asked for, or of its values' type."""
        if column.name == UNMAPPED:
            return self.unmapped_column
        return TypedColumn(column.name, self.cast_type(column.sql_type) if column.sql_type else self.types[column.type])

    @property
    def unmapped_column(self) -> TypedColumn:
        return TypedColumn(UNMAPPED, self.json_type)

    def unmapped_json(self, text: pa.Array) -> pa.Array:
        """JSON for ``_unmapped``, in a form that the engine keeps without loss. Most engines keep any JSON."""
        return text

    def cast_type(self, asked: str) -> str:
        """The engine's name for a type that a step asked for. It is put into statements as it is, so it is checked."""
        if not _TYPE.fullmatch(asked):
            raise not_a_type(asked)
        if self.known is not None and (wrong := self.known.problem(asked)) is not None:
            raise not_a_type(asked, wrong.what)
        return self.spellings.get(" ".join(asked.lower().split()), asked)

    def target(self, sql_type: str) -> Cast:
        """What values must be converted to for a real column of this type."""
        return parse_cast(sql_type)

    def wider_type(self, real: str, values: InnerType) -> str | None:
        """The type that a column needs to hold these values too, if the engine can change it to that."""
        there = self.target(real).type
        if there is None:
            return None
        common = promote(there, values)
        return self.types[common] if (there, common) in self.widens else None

    # Types of columns that follow a source's

    def mirror_type(self, declared: str) -> str | None:
        """The engine's type for one that a source declares, in PostgreSQL's words; ``None`` if there is none."""
        return None

    def holds(self, real: str, other: str) -> bool:
        """Whether a column of one type holds every value of another, as it is written."""
        return real == other or covers(self.target(real), self.target(other))

    def readable_pattern(self, sql_type: str) -> str | None:
        """A pattern for the source's texts that the engine reads with their meaning, for a type that holds what the
        source declares. ``None``: it reads all of them."""
        return None

    # Statements

    def render(self, operation: Operation) -> str:
        match operation:
            case CreateTable(table, columns, key):
                return f"CREATE TABLE IF NOT EXISTS {self.relation(table)} ({self._definitions(columns, key)})"
            case AddColumn(table, column):
                return f"{self.add_column_prefix(table)}{self._definition(column)}"
            case WidenColumn(table, column, was):
                return self.widen_statement(table, column, was)
            case SetKey(table, key):
                return f"ALTER TABLE {self.relation(table)} ADD {self._constraint(key)}"
            case Comment(table, text, name):
                where = self.relation(table)
                what = f"TABLE {where}" if name is None else f"COLUMN {where}.{self.identifier(name)}"
                return f"COMMENT ON {what} IS {self.literal(text)}"
            case DropKey(table, key):
                return f"ALTER TABLE {self.relation(table)} DROP CONSTRAINT {self.identifier(key.name)}"

    def add_column_prefix(self, table: str) -> str:
        return f"ALTER TABLE {self.relation(table)} ADD COLUMN {'IF NOT EXISTS ' if self.adds_if_missing else ''}"

    def widen_statement(self, table: str, column: TypedColumn, was: str) -> str:
        name = self.identifier(column.name)
        return f"ALTER TABLE {self.relation(table)} ALTER COLUMN {name} TYPE {column.type}"

    def lossy_rows_query(self, widening: WidenColumn) -> str | None:
        """A query that gives a row if the change would round a value; ``None`` if it never does."""
        before, after = self.target(widening.was), self.target(widening.column.type)
        if before.type is not InnerType.INT64 or after.type is not InnerType.FLOAT64 or after.precision:
            return None
        name, most = self.identifier(widening.column.name), 2**53
        return f"SELECT 1 FROM {self.relation(widening.table)} WHERE {name} > {most} OR {name} < -{most} LIMIT 1"

    # Merging: ``t`` is the table's row, ``s`` the staged one

    def staging_select(self, table: Table, columns: Sequence[str], merge: Merge | None) -> str:
        """What to select from a table to get the columns of staged rows."""
        listed = self.real_names(table, columns)
        if merge is None or not merge.in_turns or merge.version is None:
            return listed
        version = self.identifier(table.columns[merge.version].name)
        turns = f"{version} AS {self.identifier(AFTER)}, {version} AS {self.identifier(UPTO)}"
        return f"{listed}, 0 AS {self.identifier(TURN)}, {turns}"

    def merge(self, table: Table, staged: str, columns: Sequence[str], merge: Merge) -> str:
        """The statement that merges the rows of ``staged`` (a quoted relation) into a table.

        A column that a row does not carry is NULL in ``staged`` and keeps its value.
        """
        changes = self.update_values(table, columns, merge)
        newer = self.is_newer(table, columns, merge)
        matched = f" WHEN MATCHED{f' AND ({newer})' if newer else ''} THEN UPDATE SET {assignments(changes)}"
        listed = self.real_names(table, columns)
        values = ", ".join(f"s.{self.identifier(table.columns[name].name)}" for name in columns)
        return (
            f"MERGE INTO {self.relation(table.name)} AS t USING {self.due_rows(table, staged, columns, merge)} AS s"
            f" ON {self.key_match(table, merge.key)}{matched if changes else ''}"
            f" WHEN NOT MATCHED THEN INSERT ({listed}) VALUES ({values})"
        )

    def key_match(self, table: Table, key: Sequence[str], there: str = "t", comes: str = "s") -> str:
        keys = [self.identifier(table.columns[name].name) for name in key]
        return " AND ".join(f"{there}.{name} = {comes}.{name}" for name in keys)

    def due_rows(self, table: Table, staged: str, columns: Sequence[str], merge: Merge) -> str:
        """A relation with the staged row of each key whose turn it is."""
        if not merge.in_turns or merge.version is None:
            return staged
        turn, after, upto = (f"s.{self.identifier(name)}" for name in (TURN, AFTER, UPTO))
        listed = ", ".join(f"s.{self.identifier(table.columns[name].name)}" for name in columns)
        there = self.comparable(f"t.{self.identifier(table.columns[merge.version].name)}", table, merge.version)
        return (
            f"(SELECT {listed} FROM {staged} AS s WHERE {turn} IS NULL UNION ALL SELECT {listed} FROM {staged} AS s"
            f" LEFT JOIN {self.current_rows(table, staged, merge)} AS t ON {self.key_match(table, merge.key)} WHERE"
            f" {turn} = 0 AND {there} IS NULL OR {turn} >= 0 AND {there} <= {upto}"
            f" AND ({after} IS NULL OR {there} > {after}))"
        )

    def current_rows(self, table: Table, staged: str, merge: Merge) -> str:
        """The table's rows as they are now, to look up their versions."""
        return self.relation(table.name)

    def is_newer(
        self, table: Table, columns: Sequence[str], merge: Merge, there: str = "t", comes: str = "s"
    ) -> str | None:
        """Whether a staged row may change the table's; ``None`` if it always may."""
        if merge.version is None or merge.version not in columns:
            return None
        name = self.identifier(table.columns[merge.version].name)
        known, new = (self.comparable(f"{row}.{name}", table, merge.version) for row in (there, comes))
        return f"{known} IS NULL OR {new} >= {known}"

    def comparable(self, value: str, table: Table, column: str) -> str:
        """A version in Penstock's order: text is compared by its bytes."""
        return value

    def update_values(
        self, table: Table, columns: Sequence[str], merge: Merge, there: str = "t", comes: str = "s"
    ) -> dict[str, str]:
        """The new value of each column outside the key, by its quoted name."""
        real = {name: self.identifier(table.columns[name].name) for name in columns if name not in merge.key}
        spare = f"{comes}.{real[UNMAPPED]}" if UNMAPPED in real else None
        found = {}
        for name, quoted in real.items():
            value = f"COALESCE({comes}.{quoted}, {there}.{quoted})"
            if name == UNMAPPED:
                carried = {other: f"{comes}.{quoted}" for other, quoted in real.items() if other != UNMAPPED}
                value = self.merged_unmapped(f"{there}.{quoted}", f"{comes}.{quoted}", carried)
            elif name in merge.losing and spare is not None:
                value = f"CASE WHEN {self.is_unmapped(spare, name)} THEN NULL ELSE {value} END"
            found[quoted] = value
        return found

    def merged_unmapped(self, there: str, comes: str, carried: Mapping[str, str]) -> str:
        """The ``_unmapped`` of a row merged with the one that comes: the newer value of each field, where the engine
        can, and no field that the new row has in a column now (``carried``: columns to their values)."""
        return f"COALESCE({comes}, {there})"

    @abstractmethod
    def is_unmapped(self, spare: str, name: str) -> str:
        """Whether an ``_unmapped`` holds a value for this column; not true if it is NULL."""

    def parameter(self, name: str) -> str:
        """Where a query has a value that is sent beside it."""
        return f"%({name})s"

    def literal(self, text: str) -> str:
        return "'" + text.replace("'", "''") + "'"

    def _definitions(self, columns: Sequence[TypedColumn], key: Key | None) -> str:
        parts = [self._definition(column) for column in columns]
        return ", ".join([*parts, self._constraint(key)] if key else parts)

    def _constraint(self, key: Key) -> str:
        return f"CONSTRAINT {self.identifier(key.name)} PRIMARY KEY ({self.names(key.columns)})"

    def _definition(self, column: TypedColumn) -> str:
        return f"{self.identifier(column.name)} {column.type}"


def assignments(changes: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in changes.items())


def not_a_type(asked: str, reason: str = "") -> PenstockError:
    return PenstockError(
        "PEN-DST-020",
        f"a step casts to '{asked}', which is no type here{': ' + reason if reason else ''}.",
        "Cast to a type such as bigint, numeric(12,2), timestamptz or text.",
    )
