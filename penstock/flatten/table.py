"""A batch of JSON documents as one table of typed columns.

Every document ends in exactly one place: a row of the table, ``empty`` (it has no value) or ``failures`` (not a JSON
object). Every value of a row is complete in its column or in ``_unmapped``; which of the two does not depend on other
documents, except through the column's type. The rules for names are in ``column_naming`` and ``collisions``, for types
in ``inner_types``. A column's type is found like this:

- booleans, integers, floats: the lowest common type of the batch;
- a number beyond its type (an integer beyond 64 bits, ``1e400``) makes the column STRING for this batch, every value in
  its JSON spelling. So does a number that a double would round in a column of doubles; but where values may stay JSON
  (``keep_json``), the column is FLOAT64 like any of integers and doubles;
- a key that its object repeats replaces the earlier value, as in every JSON reader. The replaced value goes to
  ``_unmapped`` under its path and a number (``/a#1``);
- strings and arrays: STRING. With ``infer_timestamps``, a column of nothing but RFC 3339 timestamps is TIMESTAMP;
- a cast decides alone (of several paths with one name, the first that has one). A value that it cannot convert is null
  in the column and goes to ``_unmapped``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.compiled import Bytes
from penstock.flatten.casts import DEFAULT_CASTS, Cast, parse_cast
from penstock.flatten.collisions import Claim, Collision, reserved_leftovers, resolve_collisions
from penstock.flatten.column import Column
from penstock.flatten.column_naming import column_name
from penstock.flatten.inner_types import InnerType
from penstock.flatten.unmapped.unmapped_column import UNMAPPED, Leftover, unmapped_array
from penstock.flatten.values.to_arrow import cast_column, infer_column
from penstock.flatten.values.value_spans import Int32s, Spans, by_column
from penstock.json.document_problems import Problem
from penstock.json.documents import Documents
from penstock.json.leaves import Leaves, Replaced, leaves
from penstock.json.paths import Path, format_path, parse_path
from penstock.json.tokens import STRING, Kind

CELL_LIMIT = 8_000_000
"""Most cells (rows times columns) of one table: memory grows with them, however few are filled."""


@dataclass(frozen=True)
class Flattened:
    """The result for a batch. ``len(rows) + len(empty) + len(failures)`` is its number of documents."""

    table: pa.Table
    """One row per document with values, in order; columns in the order of their first value, ``_unmapped`` last."""
    columns: tuple[Column, ...]
    """The table's columns, in their order."""
    rows: pa.Array
    """int64: the index of each row's document."""
    empty: pa.Array
    """int64: indices of documents without a single value."""
    failures: tuple[Problem, ...]
    """Documents that are not JSON objects, by index, with code, message and byte position."""
    collisions: tuple[Collision, ...]
    refused: int
    """How many values are in ``_unmapped`` because their column's cast could not convert them."""
    replaced: int
    """How many values are in ``_unmapped`` because their object repeats the key later."""


def flatten(
    data: pa.Array | pa.ChunkedArray,
    casts: Mapping[str, str] | None = None,
    max_name: int | None = None,
    infer_timestamps: bool = False,
) -> Flattened:
    """Flatten a (large) binary or string array of documents. ``casts`` are SQL types by JSON path."""
    return _flattened(leaves(data), _Options(_by_path(casts), max_name, infer_timestamps))


def flatten_pieces(
    data: pa.Array | pa.ChunkedArray,
    casts: Mapping[str, str] | None = None,
    max_name: int | None = None,
    infer_timestamps: bool = False,
    keep_json: bool = False,
    cell_limit: int = CELL_LIMIT,
) -> Iterator[tuple[int, Flattened]]:
    """The same, in as few pieces as keep each table within ``cell_limit`` (a single row may always exceed it).

    Each comes with the index of its first document in ``data``; all indices inside a piece count from there. With
    ``keep_json`` a column with several kinds of values holds JSON (``Column.json``), and inferred timestamps are text.
    """
    options = _Options(_by_path(casts), max_name, infer_timestamps, keep_json)
    for first, piece in split_by_cells(leaves(data), cell_limit):
        yield first, _flattened(piece, options)


@dataclass(frozen=True)
class _Options:
    casts: Mapping[Path, Cast]
    max_name: int | None
    infer_timestamps: bool
    keep_json: bool = False


def _by_path(casts: Mapping[str, str] | None) -> Mapping[Path, Cast]:
    return DEFAULT_CASTS | {parse_path(path): parse_cast(sql_type) for path, sql_type in (casts or {}).items()}


def _flattened(found: Leaves, options: _Options) -> Flattened:
    filled = np.zeros(len(found.documents), np.bool_)
    filled[found.record] = True
    filled[found.replaced.record] = True
    rows = np.flatnonzero(filled)
    row_of_record = np.cumsum(filled, dtype=np.int32) - np.int32(1)
    claims: dict[str, list[Claim]] = {}
    for path, spans in zip(found.paths, by_column(found, row_of_record), strict=True):
        claims.setdefault(column_name(path, options.max_name), []).append(Claim(path, spans))
    sheet = _TableBuilder(len(rows), options)
    for name, claimed in claims.items():
        sheet.add(name, claimed)
    sheet.set_aside(replaced_values(found.replaced, found.documents.buffer, row_of_record))
    table = sheet.finish()
    return Flattened(
        table=table,
        columns=tuple(sheet.columns),
        rows=pa.array(rows, pa.int64()),
        empty=pa.array(np.flatnonzero(~filled & (found.broken_at == -1)), pa.int64()),
        failures=found.problems,
        collisions=tuple(sheet.collisions),
        refused=sheet.refused,
        replaced=len(found.replaced),
    )


class _TableBuilder:
    """A table while its columns are added, one after the other."""

    def __init__(self, rows: int, options: _Options) -> None:
        self._rows = rows
        self._options = options
        self._arrays: list[pa.Array] = []
        self._leftovers: list[Leftover] = []
        self.columns: list[Column] = []
        self.collisions: list[Collision] = []
        self.refused = 0

    def add(self, name: str, claims: Sequence[Claim]) -> None:
        """Add a column, from the paths that have its name."""
        if name == UNMAPPED:
            leftovers, collisions = reserved_leftovers(name, claims)
            self._leftovers += leftovers
            self.collisions += collisions
            return
        settled = resolve_collisions(name, claims)
        self._leftovers += settled.leftovers
        self.collisions += settled.collisions
        asked = next((cast for claim in claims if (cast := self._options.casts.get(claim.path))), None)
        if asked:
            typed = cast_column(settled.spans, self._rows, asked, self._options.keep_json)
        else:
            typed = infer_column(settled.spans, self._rows, self._options.infer_timestamps, self._options.keep_json)
        if typed.refused is not None:
            self.refused += int(typed.refused.sum())
            self._leftovers.append(Leftover(name, settled.spans.where(typed.refused)))
        self._arrays.append(typed.array)
        self.columns.append(Column(name, settled.paths, typed.type, asked.sql_type if asked else None, typed.json))

    def set_aside(self, leftovers: Sequence[Leftover]) -> None:
        """Add leftovers under unique keys: a path may end like the number of a replaced value."""
        taken = {leftover.key for leftover in self._leftovers}
        for leftover in leftovers:
            key = leftover.key
            while key in taken:
                key += "#"
            taken.add(key)
            self._leftovers.append(replace(leftover, key=key))

    def finish(self) -> pa.Table:
        if self._leftovers:
            self._arrays.append(unmapped_array(self._leftovers, self._rows))
            self.columns.append(Column(UNMAPPED, (), InnerType.STRING))
        return pa.Table.from_arrays(self._arrays, names=[column.name for column in self.columns])


def replaced_values(found: Replaced, buffer: Bytes, row_of_record: Int32s) -> list[Leftover]:
    """Values whose key is repeated in their object, for ``_unmapped``. Each under its path with a number, ``/a#1`` for
    the first value: ``/a`` alone may be the key of a value that lost its column to another path."""
    if not len(found):
        return []
    order = np.lexsort((found.start, found.record, found.path))
    record, path, kind = found.record[order], found.path[order], found.kind[order]
    # Spans leave out the quotes of strings.
    quote = (kind == STRING).astype(np.int64)
    start, end = found.start[order] + quote, found.end[order] - quote
    first = (np.diff(path, prepend=-1) != 0) | (np.diff(record, prepend=-1) != 0)
    places = np.arange(len(path))
    time = places - places[first][np.cumsum(first) - 1]
    leftovers = []
    for place, again in np.unique(np.stack([path, time], axis=1), axis=0).tolist():
        chosen = (path == place) & (time == again)
        key = f"{format_path(found.paths[place])}#{again + 1}"
        spans = Spans(buffer, row_of_record[record[chosen]], kind[chosen], start[chosen], end[chosen], frozenset(Kind))
        leftovers.append(Leftover(key, spans))
    return leftovers


def split_by_cells(found: Leaves, cell_limit: int) -> Iterator[tuple[int, Leaves]]:
    """Pieces of whole documents, in order, each with the index of its first document. Halves them until they fit.

    A table has a cell for every row and column, filled or not. Events that each have thousands of keys of their own
    would make a nearly empty table of gigabytes; half as many events have about half the columns too. Documents are
    scanned once: pieces share the leaves that were found.
    """
    count = len(found.documents)
    if count < 2 or len(found.paths) * count <= cell_limit:
        yield 0, found
        return
    middle = count // 2
    yield from split_by_cells(_piece(found, 0, middle), cell_limit)
    for first, piece in split_by_cells(_piece(found, middle, count), cell_limit):
        yield middle + first, piece


def _piece(found: Leaves, first: int, last: int) -> Leaves:
    docs = found.documents
    begin, end = np.searchsorted(found.record, [first, last]).tolist()
    used, places, column = np.unique(found.column[begin:end], return_index=True, return_inverse=True)
    by_first_leaf = np.argsort(places)
    rank = np.empty(len(used), np.int32)
    rank[by_first_leaf] = np.arange(len(used), dtype=np.int32)
    return Leaves(
        Documents(docs.buffer, docs.offsets[first : last + 1], docs.valid[first:last]),
        found.record[begin:end] - np.int32(first),
        rank[column],
        found.kind[begin:end],
        found.start[begin:end],
        found.end[begin:end],
        tuple(found.paths[place] for place in used[by_first_leaf].tolist()),
        found.broken_at[first:last],
        found.replaced.between(first, last),
    )
