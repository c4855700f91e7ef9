"""The header of a staged file of changes: its columns with all that is known about their types, and the key."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from penstock.destinations.sql.dialect import Dialect
from penstock.flatten.inner_types import InnerType, promote


@dataclass(frozen=True)
class MirrorColumn:
    """A column that changes carry. Its type is the one that a step asked for, else the one that the source declares,
    else that of its values."""

    name: str
    """Our name; in a staged file, where that is not decided yet, the source's."""
    source: str
    asked: str | None = None
    declared: str | None = None
    values: InnerType | None = None
    """For a column without a declared type: the lowest type that holds its values, if it has any."""
    nested: bool = False
    """Whether objects or arrays are among those values."""
    earlier: frozenset[str] = frozenset()
    """Other types that some of the changes declare: the source has changed its type since."""

    def type(self, dialect: Dialect) -> str | None:
        """The engine's type for it; ``None`` if all known values are NULL."""
        if self.asked is not None:
            return dialect.cast_type(self.asked)
        if self.declared is not None:
            return dialect.mirror_type(self.declared) or dialect.types[InnerType.STRING]
        if self.nested:
            return dialect.json_type
        return dialect.types[self.values] if self.values else None

    def is_known(self, dialect: Dialect) -> bool:
        """Whether the engine has a type of its own for it, so that it does not fall back to text."""
        return self.asked is not None or self.declared is None or dialect.mirror_type(self.declared) is not None

    def types(self, dialect: Dialect) -> list[str]:
        """The engine's types for all types that changes declare for it."""
        every = [self, *(replace(self, declared=declared) for declared in sorted(self.earlier))]
        return [found for column in every if (found := column.type(dialect)) is not None]

    def updated_by(self, later: MirrorColumn) -> MirrorColumn:
        """The same column with what later changes say about it."""
        values = promote(self.values, later.values) if self.values and later.values else self.values or later.values
        declared = {self.declared, *self.earlier, *later.earlier} - {later.declared, None}
        return replace(
            later,
            values=values,
            nested=self.nested or later.nested,
            earlier=frozenset(each for each in declared if each is not None),
        )


@dataclass(frozen=True)
class MirrorHeader:
    """``key`` uses the names of ``columns``; an empty key means that rows are identified by all their values."""

    columns: tuple[MirrorColumn, ...]
    key: tuple[str, ...]
    namespaces: tuple[str, ...]
    """Where the changes come from."""

    def shares_a_file_with(self, other: MirrorHeader) -> bool:
        known = {column.name: column for column in self.columns}
        return self.key == other.key and all(
            (column.source, column.asked, column.declared) == (there.source, there.asked, there.declared)
            for column in other.columns
            if (there := known.get(column.name))
        )

    def encode(self) -> str:
        columns = [[c.name, c.source, c.asked, c.declared, c.values, c.nested] for c in self.columns]
        return json.dumps({"columns": columns, "key": self.key, "namespaces": self.namespaces})


def decode(text: str) -> MirrorHeader:
    found = json.loads(text)
    return MirrorHeader(
        tuple(
            MirrorColumn(name, source, asked, declared, InnerType(values) if values else None, nested)
            for name, source, asked, declared, values, nested in found["columns"]
        ),
        tuple(found["key"]),
        tuple(found["namespaces"]),
    )


def merge_headers(headers: Iterable[MirrorHeader]) -> MirrorHeader:
    """Merges the headers of files in the order of the log: every column once, as the newest header has it."""
    columns: dict[str, MirrorColumn] = {}
    key: tuple[str, ...] = ()
    namespaces: dict[str, None] = {}
    for header in headers:
        key = header.key
        namespaces |= dict.fromkeys(header.namespaces)
        for column in header.columns:
            known = columns.get(column.name)
            columns[column.name] = known.updated_by(column) if known else column
    return MirrorHeader(tuple(columns.values()), key, tuple(namespaces))
