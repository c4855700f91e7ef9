"""The header of a staged file: its columns, where in the JSON they come from, and their types.

Headers travel as JSON text inside a ``Part``. Those of a batch are merged into one per table: every column once, in
order of first appearance, with the narrowest type that holds all its values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from penstock.flatten.column import Column
from penstock.flatten.types import InnerType, promote


def encode(columns: Sequence[Column]) -> str:
    return json.dumps([[column.name, column.path, column.type, column.sql_type] for column in columns])


def decode(text: str) -> tuple[Column, ...]:
    return tuple(Column(name, path, InnerType(inner), sql_type) for name, path, inner, sql_type in json.loads(text))


def merge(headers: Iterable[Sequence[Column]]) -> tuple[Column, ...]:
    merged: dict[str, Column] = {}
    for column in (column for header in headers for column in header):
        known = merged.setdefault(column.name, column)
        if known is not column:
            inner, sql_type = promote(known.type, column.type), known.sql_type or column.sql_type
            merged[column.name] = Column(known.name, known.path, inner, sql_type)
    return tuple(merged.values())
