"""Rows of fields as JSON: what goes into ``data`` and ``key`` of records. Compiled, into memory that is used again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.compiled import Bytes, compiled, inlined
from penstock.json.tokens import CLOSE_OBJECT, COMMA, OPEN_OBJECT
from penstock.sources.postgres.catalog.table_layout import Packed
from penstock.sources.postgres.rows.row_fields import ABSENT, UNCHANGED, Fields, Places
from penstock.sources.postgres.rows.scratch import Scratch
from penstock.sources.postgres.rows.value_json import Out, copy_bytes, write_null, write_value

Numbers = npt.NDArray[np.int64]
Indexes = npt.NDArray[np.int32]

TRUNCATED = b'{"truncate":true}'

_TRUNCATED = np.frombuffer(TRUNCATED, np.uint8)
_ROW_ROOM = 24
"""More than what a row needs besides its columns."""


class Texts(NamedTuple):
    """A text per row, laid end to end: ``out[offsets[i]:offsets[i + 1]]``."""

    out: Bytes
    offsets: Indexes


class Rows(NamedTuple):
    """Rows of one or several layouts."""

    layout: Indexes
    """Per row which layout it has."""
    first_field: Numbers
    """Per row where its fields begin; negative: there is no row."""


def data_of(rows: Rows, fields: Fields, packed: Packed, scratch: Scratch) -> Texts:
    """Every row as a JSON object of the columns that are known of it; where there is none, that all are gone."""
    out, offsets = _room("data", rows, fields, packed, scratch)
    _write_data(rows, fields, packed, out, offsets)
    return Texts(out, offsets)


def keys_of(rows: Rows, fields: Fields, packed: Packed, scratch: Scratch) -> Texts:
    """The key of every row as a JSON object; empty where there is no row, or its table has no key."""
    return _keys("key", False, rows, fields, packed, scratch)


def old_keys_of(rows: Rows, fields: Fields, packed: Packed, scratch: Scratch) -> Texts:
    """The same for rows that were replaced; where the table has no key, the whole row is its own name."""
    return _keys("old_key", True, rows, fields, packed, scratch)


def keys_only(groups: Sequence[Rows], fields: Fields, packed: Packed) -> Fields:
    """The fields with the values of keys alone: for the odd row that is too large to be written out."""
    starts = np.full_like(fields.starts, ABSENT)
    ends = np.zeros_like(fields.ends)
    values = [np.zeros(0, np.uint8)]
    size = 0
    for rows in groups:
        for layout, first in zip(rows.layout.tolist(), rows.first_field.tolist(), strict=True):
            parts = range(packed.first_key[layout], packed.first_key[layout + 1]) if first >= 0 else ()
            for field in (first + int(packed.key_column[part]) for part in parts):
                starts[field] = fields.starts[field]
                if starts[field] >= 0:
                    values.append(fields.text[fields.starts[field] : fields.ends[field]])
                    starts[field], ends[field] = size, size + len(values[-1])
                    size += len(values[-1])
    text = np.concatenate(values)
    text.flags.writeable = False
    return Fields(text, starts, ends)


def _keys(name: str, or_row: bool, rows: Rows, fields: Fields, packed: Packed, scratch: Scratch) -> Texts:
    out, offsets = _room(name, rows, fields, packed, scratch)
    _write_keys(rows, fields, packed, or_row, out, offsets)
    return Texts(out, offsets)


def _room(name: str, rows: Rows, fields: Fields, packed: Packed, scratch: Scratch) -> tuple[Out, Indexes]:
    """Memory that surely holds the rows. What is never written to is never really taken."""
    first = packed.first_column
    labels = packed.label_at[first[1:]] - packed.label_at[first[:-1]]
    columns = first[1:] - first[:-1]
    per_layout = np.bincount(rows.layout, minlength=len(columns))
    fixed = int(per_layout @ (labels + 8 * columns + _ROW_ROOM))
    return (
        scratch.bytes(name, fixed + 6 * len(fields.text) + 64),
        scratch.int32(f"{name}.offsets", len(rows.layout) + 1),
    )


@compiled
def _write_data(rows: Rows, fields: Fields, packed: Packed, out: Out, offsets: Indexes) -> None:
    # Unpacked here: an array that is taken out of its tuple row by row costs as much as the row.
    layout, first_field = rows
    text, starts, ends = fields
    first_column, kinds, labels, label_at = packed[:4]
    at = 0
    offsets[0] = 0
    for row in range(len(layout)):
        field = first_field[row]
        table = layout[row]
        if field < 0:
            at = copy_bytes(_TRUNCATED, 0, len(_TRUNCATED), out, at)
        else:
            first, last = first_column[table], first_column[table + 1]
            at = _write_row(text, starts, ends, field, first, last, kinds, labels, label_at, out, at)
        offsets[row + 1] = at


@compiled
def _write_keys(rows: Rows, fields: Fields, packed: Packed, or_row: bool, out: Out, offsets: Indexes) -> None:
    layout, first_field = rows
    text, starts, ends = fields
    first_column, kinds, labels, label_at, first_key, key_column = packed[:6]
    at = 0
    offsets[0] = 0
    for row in range(len(layout)):
        table = layout[row]
        first = first_column[table]
        if first_field[row] >= 0 and first_key[table] < first_key[table + 1]:
            out[at] = OPEN_OBJECT
            at += 1
            for part in range(first_key[table], first_key[table + 1]):
                if part != first_key[table]:
                    out[at] = COMMA
                    at += 1
                place = key_column[part]
                field = first_field[row] + place
                at = _write_member(text, starts[field], ends[field], first + place, kinds, labels, label_at, out, at)
            out[at] = CLOSE_OBJECT
            at += 1
        elif first_field[row] >= 0 and or_row:
            at = _write_row(
                text, starts, ends, first_field[row], first, first_column[table + 1], kinds, labels, label_at, out, at
            )
        offsets[row + 1] = at


@inlined
def _write_row(
    text: Bytes,
    starts: Places,
    ends: Places,
    field: int,
    first: int,
    last: int,
    kinds: npt.NDArray[np.uint8],
    labels: Bytes,
    label_at: Indexes,
    out: Out,
    at: int,
) -> int:
    out[at] = OPEN_OBJECT
    at += 1
    begin = at
    for column in range(first, last):
        start = starts[field]
        if start != UNCHANGED and start != ABSENT:
            if at != begin:
                out[at] = COMMA
                at += 1
            at = _write_member(text, start, ends[field], column, kinds, labels, label_at, out, at)
        field += 1
    out[at] = CLOSE_OBJECT
    return at + 1


@inlined
def _write_member(
    text: Bytes,
    start: int,
    end: int,
    column: int,
    kinds: npt.NDArray[np.uint8],
    labels: Bytes,
    label_at: Indexes,
    out: Out,
    at: int,
) -> int:
    at = copy_bytes(labels, label_at[column], label_at[column + 1], out, at)
    if start < 0:
        at = write_null(out, at)
    else:
        at = write_value(text, start, end, kinds[column], out, at)
    return at
