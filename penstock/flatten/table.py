"""A batch of JSON documents as one table of typed columns.

Every document ends in exactly one place: a row of the table, ``empty`` (no value in it) or ``failures`` (not a JSON
object). Every value of a row is in its column or in ``_unmapped``, whole. The rules for names are in ``names``, for
types in ``types``; what makes a column's type here:

- booleans, integers, floats: the lowest common type of the batch;
- a number beyond its type (an integer beyond 64 bits, ``1e400``, an integer that a double would round in a column of
  doubles) makes the column STRING for this batch, every value in its JSON spelling;
- strings and arrays: STRING. With ``infer_timestamps``, a column of nothing but RFC 3339 timestamps is TIMESTAMP;
- a cast decides by itself. A value that it cannot take is null in the column and goes to ``_unmapped``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.flatten.casts import DEFAULT_CASTS, Cast, parse_cast
from penstock.flatten.column import Column
from penstock.flatten.conversion import cast, inferred
from penstock.flatten.names import column_name
from penstock.flatten.spans import Spans, by_column
from penstock.flatten.types import InnerType
from penstock.flatten.unmapped import UNMAPPED, Leftover, unmapped_array
from penstock.json.leaves import leaves
from penstock.json.paths import Path, format_path, parse_path
from penstock.json.problems import Problem


@dataclass(frozen=True)
class Collision:
    """Two paths with one name: ``path`` went to ``_unmapped``, ``kept`` has the column (None: the name is reserved)."""

    name: str
    path: str
    kept: str | None
    values: int


@dataclass(frozen=True)
class Flattened:
    """What became of a batch. ``len(rows) + len(empty) + len(failures)`` is its number of documents."""

    table: pa.Table
    """One row per document with values, in order; columns in the order of their first value, ``_unmapped`` last."""
    columns: tuple[Column, ...]
    """What the table's columns are, in their order."""
    rows: pa.Array
    """int64: of each row, the index of its document."""
    empty: pa.Array
    """int64: indices of documents without a single value."""
    failures: tuple[Problem, ...]
    """Documents that are not JSON objects, by index, with code, message and byte position."""
    collisions: tuple[Collision, ...]
    refused: int
    """Values in ``_unmapped`` because their column's cast could not take them."""
    replaced: int
    """Values left out because their object has the same key again further on."""


def flatten(
    data: pa.Array | pa.ChunkedArray,
    casts: Mapping[str, str] | None = None,
    max_name: int | None = None,
    infer_timestamps: bool = False,
) -> Flattened:
    """Flatten a (large) binary or string array of documents. ``casts`` are SQL types by JSON path."""
    found = leaves(data)
    count = len(found.documents)
    filled = np.zeros(count, np.bool_)
    filled[found.record] = True
    rows = np.flatnonzero(filled)
    row_of_record = np.cumsum(filled, dtype=np.int32) - np.int32(1)
    asked: dict[Path, Cast] = DEFAULT_CASTS | {parse_path(p): parse_cast(sql) for p, sql in (casts or {}).items()}
    sheet = _Sheet(len(rows), max_name, infer_timestamps)
    for path, spans in zip(found.paths, by_column(found, row_of_record), strict=True):
        sheet.add(path, spans, asked.get(path))
    table = sheet.finish()
    return Flattened(
        table=table,
        columns=tuple(sheet.columns),
        rows=pa.array(rows, pa.int64()),
        empty=pa.array(np.flatnonzero(~filled & (found.broken_at == -1)), pa.int64()),
        failures=found.problems,
        collisions=tuple(sheet.collisions),
        refused=sheet.refused,
        replaced=found.replaced,
    )


class _Sheet:
    """A table while its columns are added, one after the other."""

    def __init__(self, rows: int, max_name: int | None, infer_timestamps: bool) -> None:
        self._rows = rows
        self._max_name = max_name
        self._infer_timestamps = infer_timestamps
        self._owners: dict[str, str | None] = {UNMAPPED: None}
        self._arrays: list[pa.Array] = []
        self._leftovers: list[Leftover] = []
        self.columns: list[Column] = []
        self.collisions: list[Collision] = []
        self.refused = 0

    def add(self, path: Path, spans: Spans, asked: Cast | None) -> None:
        name, text = column_name(path, self._max_name), format_path(path)
        if name in self._owners:
            self.collisions.append(Collision(name, text, self._owners[name], len(spans)))
            self._leftovers.append(Leftover(text, spans))
            return
        self._owners[name] = text
        typed = cast(spans, self._rows, asked) if asked else inferred(spans, self._rows, self._infer_timestamps)
        if typed.refused is not None:
            self.refused += int(typed.refused.sum())
            self._leftovers.append(Leftover(name, spans.where(typed.refused)))
        self._arrays.append(typed.array)
        self.columns.append(Column(name, text, typed.type, asked.sql_type if asked else None))

    def finish(self) -> pa.Table:
        if self._leftovers:
            self._arrays.append(unmapped_array(self._leftovers, self._rows))
            self.columns.append(Column(UNMAPPED, None, InnerType.STRING))
        return pa.Table.from_arrays(self._arrays, names=[column.name for column in self.columns])
