"""The header of a staged file: its columns, where in the JSON they come from, and their types.

Headers travel as JSON text inside a ``Part``. Those of a batch are merged into one per table: every column once, in
order of first appearance, with every path that fills it and the narrowest type that holds all its values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from penstock.flatten.column import Column
from penstock.flatten.inner_types import InnerType, promote


def encode(columns: Sequence[Column]) -> str:
    return json.dumps([[column.name, column.paths, column.type, column.sql_type, column.json] for column in columns])


def decode(text: str) -> tuple[Column, ...]:
    return tuple(
        Column(name, tuple(paths), InnerType(inner), sql_type, is_json)
        for name, paths, inner, sql_type, is_json in json.loads(text)
    )


def merge(headers: Iterable[Sequence[Column]]) -> tuple[Column, ...]:
    merged: dict[str, Column] = {}
    for column in (column for header in headers for column in header):
        known = merged.setdefault(column.name, column)
        if known is not column:
            merged[column.name] = Column(
                known.name,
                tuple(dict.fromkeys(known.paths + column.paths)),
                promote(known.type, column.type),
                known.sql_type or column.sql_type,
                known.json or column.json,
            )
    return tuple(merged.values())
