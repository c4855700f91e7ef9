"""From the data of bundles to rows of typed columns, by the rules of ``flatten``.

The rows are an array of objects, at a pointer that goes through objects. Keys of nested objects are joined with ``_``,
arrays are their JSON text. Nothing is lost on the way: a bundle whose rows cannot all be kept whole is refused, with
the row's place, and never taken for one without rows.

- **Complete**: the array has all objects of the source. An empty one says that there are none.
- **Delta**: the array has the objects that changed, each as a whole.
- **Hybrid**: an object of up to five arrays. What a bundle says is taken in this order, so the last word on an object
  counts: ``resync``, ``create`` and ``update`` have objects as they are now; ``delete`` has the keys of objects that
  are gone; ``resync_metadata`` has the keys of all objects that there are, so that any other is gone, whatever the
  same bundle said of it, and changes none of the listed ones. An empty ``resync_metadata`` says that there are none; a
  missing one says nothing. A ``resync`` alone deletes nothing: who has many objects sends it in several bundles.

Of a pack the bundles count in their order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.conflation.fold_rows import Said, fold_rows, object_numbers
from penstock.conflation.kinds import Sync
from penstock.destinations.state.config import MAX_NAME
from penstock.destinations.state.store.contract import StateRows
from penstock.errors import RefusedError
from penstock.flatten.column import Column
from penstock.flatten.fit_column import plain_text
from penstock.flatten.inner_types import InnerType
from penstock.flatten.table import flatten_pieces
from penstock.flatten.unmapped.unmapped_column import UNMAPPED
from penstock.flatten.values.to_json import as_text
from penstock.json.arrow_text import gathered
from penstock.json.containers import count_elements, element_spans
from penstock.json.find import Found, find
from penstock.json.members import drop_members
from penstock.json.paths import Path, format_path, parse_path
from penstock.json.tokens import ABSENT, ARRAY, OBJECT, Kind

MOST_COLUMNS = 1_000
MOST_CELLS = 64_000_000
"""Rows times columns: memory grows with them, however few are filled."""


@dataclass(frozen=True)
class RowRules:
    """How the data of a kind's bundles becomes rows."""

    pointer: str
    """Where the rows are in the data: ``/items``, say; empty: the data itself."""
    key: tuple[str, ...]
    """The columns that tell objects apart, by the names that columns have."""
    sync: Sync


def rows_of_bundle(data: bytes, rules: RowRules) -> StateRows:
    """The rows of one bundle. Raises ``RefusedError`` with the reason and the row's place."""
    return rows_of_pack([data], rules)


def rows_of_pack(datas: Sequence[bytes], rules: RowRules) -> StateRows:
    """The rows of several bundles, the oldest first, as those of one: the newest word on each object counts. Of
    complete bundles only the last one counts."""
    if rules.sync is Sync.COMPLETE:
        datas = datas[-1:]
    lists = [found for rank, data in enumerate(datas) for found in _lists_of(rank, data, rules)]
    # What only the key counts of comes last: of one bundle, the later row is the newer word.
    lists.sort(key=lambda found: found.said)
    puts = [found for found in lists if found.said is Said.PUT]
    names = [found for found in lists if found.said is not Said.PUT]
    table, columns = typed_rows(puts, rules)
    if sum(len(found.documents) for found in names):
        table, columns = _with_names(table, columns, *typed_rows(names, rules), rules)
    _refuse_repeated_keys(table, lists, rules)
    said = np.repeat(np.array([found.said for found in lists], np.int8), [len(found.documents) for found in lists])
    if rules.sync is Sync.COMPLETE:
        return StateRows(table, columns, said, prunes=True)
    ranks = np.repeat(np.array([found.rank for found in lists], np.int64), [len(found.documents) for found in lists])
    listing = [found.rank for found in lists if found.said is Said.LIST]
    folded = fold_rows([_array(table, name) for name in rules.key if table.num_rows], said, ranks, listing)
    return StateRows(table.take(pa.array(folded.rows)), columns, folded.said, folded.prunes)


class RowList(NamedTuple):
    """Rows that one bundle says the same of."""

    rank: int
    said: Said
    pointer: str
    documents: pa.BinaryArray


_HYBRID = {
    "resync": Said.PUT,
    "create": Said.PUT,
    "update": Said.PUT,
    "delete": Said.DELETE,
    "resync_metadata": Said.LIST,
}


def _lists_of(rank: int, data: bytes, rules: RowRules) -> Iterator[RowList]:
    where = parse_path(rules.pointer)
    if rules.sync is not Sync.HYBRID:
        found = find_in_data([data], [where])
        yield RowList(rank, Said.PUT, _shown(where), _elements(found, 1, where))
        return
    found = find_in_data([data], [where, *((*where, name) for name in _HYBRID)])
    _require(found, 1, where, OBJECT, "an object with create, update, delete, resync or resync_metadata")
    begin, end = int(found.value_start[0, 1]), int(found.value_end[0, 1])
    others = drop_members(pa.array([found.buffer[begin:end].tobytes()], pa.binary()), [(name,) for name in _HYBRID])
    if (unknown := _first_member(others.data[0].as_py())) is not None:
        _refuse(f"there is '{unknown[:60]}' at {_shown(where)}, which is none of {', '.join(_HYBRID)}")
    for place, (name, said) in enumerate(_HYBRID.items(), 2):
        if found.kind[0, place] != ABSENT:
            path = (*where, name)
            yield RowList(rank, said, _shown(path), _elements(found, place, path))


def find_in_data(datas: Sequence[bytes], paths: Sequence[Path]) -> Found:
    """Finds paths in data, each of which may be any JSON value: as the only member of an object. Path 0 is the data."""
    documents = pa.array([_BEGIN + data + _END for data in datas], pa.large_binary())
    found = find(documents, [("",), *(("", *path) for path in paths)])
    if not found.valid.all():
        _refuse("the data is no JSON")
    firsts, lasts = found.offsets[:-1] + len(_BEGIN), found.offsets[1:] - len(_END)
    # Around the value there may be white space alone: neither a second member nor the end of the object.
    around = (*zip(firsts, found.value_start[:, 0], strict=True), *zip(found.value_end[:, 0], lasts, strict=True))
    if any(start != end and found.buffer[start:end].tobytes().strip() for start, end in around):
        _refuse("the data is no JSON")
    return found


_BEGIN, _END = b'{"":', b"}"


def _elements(found: Found, place: int, path: Path) -> pa.BinaryArray:
    _require(found, place, path, ARRAY, "an array of objects")
    starts, ends = (np.ascontiguousarray(spans[:, place]) for spans in (found.value_start, found.value_end))
    count = int(count_elements(found.buffer, starts, ends, np.ones(1, np.bool_))[0])
    starts, ends = element_spans(found.buffer, int(starts[0]), int(ends[0]), count)
    return gathered(found.buffer, starts, ends - starts)


def _first_member(text: bytes) -> str | None:
    """The key of an object's first member, as it is written. Its values are not looked into: they may be as deep, and
    its numbers as large, as they like."""
    key = _FIRST_KEY.match(text)
    return None if key is None else key[1].decode()


_FIRST_KEY = re.compile(rb'\{\s*"((?:[^"\\]|\\.)*)"', re.DOTALL)


def _require(found: Found, place: int, path: Path, kind: int, wanted: str) -> None:
    there = int(found.kind[0, place])
    if there == ABSENT:
        _refuse(f"there is nothing at {_shown(path)}, where {wanted} should be")
    if there != kind:
        _refuse(f"what is at {_shown(path)} is {Kind(there).name.lower()}, not {wanted}")


def typed_rows(lists: Sequence[RowList], rules: RowRules) -> tuple[pa.Table, tuple[Column, ...]]:
    """All rows of the lists as one table, each with its whole key, whose values are of one kind."""
    table, columns = flat_rows(lists, rules)
    for name in rules.key if columns else ():
        number = table.schema.get_field_index(name)
        if columns[number].json:
            # Values of several kinds: the same number may be spelled as text, and is the same key.
            table = table.set_column(number, name, plain_text(_array(table, name)))
            text = Column(name, columns[number].paths, InnerType.STRING)
            columns = (*columns[:number], text, *columns[number + 1 :])
    return table, columns


def flat_rows(lists: Sequence[RowList], rules: RowRules) -> tuple[pa.Table, tuple[Column, ...]]:
    """All rows of the lists as one table, each with its whole key."""
    documents = pa.concat_arrays([found.documents for found in lists]) if lists else pa.array([], pa.binary())
    if not len(documents):
        return pa.table({}), ()
    limit = min(MOST_COLUMNS * len(documents), max(MOST_CELLS, len(documents)))
    ((_, flat), *more) = flatten_pieces(documents, max_name=MAX_NAME, keep_json=True, cell_limit=limit)
    if more or len(flat.columns) > MOST_COLUMNS:
        _refuse(f"its rows have too many different fields: more than {MOST_COLUMNS}, or {MOST_CELLS:,} cells in all")
    if flat.failures:
        _refuse(f"{_place(lists, min(problem.record for problem in flat.failures))} is no object")
    if len(flat.empty):
        _refuse(f"{_place(lists, flat.empty[0].as_py())} has no value for the key column '{rules.key[0]}'")
    if UNMAPPED in flat.table.column_names:
        _refuse_leftovers(flat.table.column(UNMAPPED), lists)
    for name in rules.key:
        number = flat.table.schema.get_field_index(name)
        missing = 0 if number < 0 else pc.index(flat.table.column(number).is_null(), True).as_py()
        if missing >= 0:
            _refuse(f"{_place(lists, missing)} has no value for the key column '{name}'")
    return flat.table, flat.columns


def _with_names(
    puts: pa.Table, columns: tuple[Column, ...], names: pa.Table, name_columns: tuple[Column, ...], rules: RowRules
) -> tuple[pa.Table, tuple[Column, ...]]:
    """The rows that are put, and below them the keys of others."""
    keys = {column.name: column for column in name_columns if column.name in rules.key}
    listed = list(columns) or list(keys.values())
    arrays = []
    for place, column in enumerate(listed):
        above = _array(puts, column.name) if columns else pa.nulls(0, _array(names, column.name).type)
        if column.name not in keys:
            arrays.append(pa.concat_arrays([above, pa.nulls(names.num_rows, above.type)]))
            continue
        below = _array(names, column.name)
        if above.type != below.type:
            above, below = as_text(above), as_text(below)
            listed[place] = Column(column.name, column.paths, InnerType.STRING)
        arrays.append(pa.concat_arrays([above, below]))
    return pa.Table.from_arrays(arrays, [column.name for column in listed]), tuple(listed)


def _refuse_leftovers(unmapped: pa.ChunkedArray, lists: Sequence[RowList]) -> None:
    """Refuse rows that have two values for one column."""
    row = pc.index(unmapped.is_valid(), True).as_py()
    if row >= 0:
        field = _first_member(unmapped[row].as_py().encode())
        _refuse(f"{_place(lists, row)} has two values for one column, or one that no column holds: {field}")


def _refuse_repeated_keys(table: pa.Table, lists: Sequence[RowList], rules: RowRules) -> None:
    """Refuse an object that one list has twice: which of them counts, nobody knows."""
    if not table.num_rows:
        return
    objects = object_numbers([_array(table, name) for name in rules.key], table.num_rows)
    for start, end in pairwise(np.cumsum([0, *(len(found.documents) for found in lists)]).tolist()):
        again = first_repeated(objects[start:end])
        if again is not None:
            first, second = (start + row for row in again)
            key = ", ".join(f"{name} = {str(table.column(name)[second])[:60]}" for name in rules.key)
            _refuse(f"{_place(lists, second)} has the key of {_place(lists, first)} ({key})")


def first_repeated(objects: npt.NDArray[np.int64]) -> tuple[int, int] | None:
    """The first row whose object an earlier one has, behind that one."""
    order = np.argsort(objects, kind="stable")
    same = np.flatnonzero(objects[order[1:]] == objects[order[:-1]])
    if not len(same):
        return None
    at = same[np.argmin(order[same + 1])]
    return int(order[at]), int(order[at + 1])


def _array(table: pa.Table, name: str) -> pa.Array:
    found = table.column(name)
    return found.combine_chunks() if found.num_chunks != 1 else found.chunk(0)


def _place(lists: Sequence[RowList], row: int) -> str:
    """Where in the data a row is."""
    for found in lists:
        if row < len(found.documents):
            return f"the row {found.pointer.removesuffix('/')}/{row}"
        row -= len(found.documents)
    raise IndexError(row)


def _shown(path: Path) -> str:
    return format_path(path)


def _refuse(why: str) -> NoReturn:
    raise RefusedError(
        "PEN-DST-140",
        f"the bundle's rows cannot be read: {why}.",
        "Let the source send it right, under a newer version; `rows`, `key` and `sync` of the kind say what is right.",
    )
