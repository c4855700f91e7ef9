"""Changes as entries for the log: op, row, key, and the headers that tell them apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.compiled import Bytes, compiled
from penstock.json.tokens import CLOSE_ARRAY, COMMA, OPEN_ARRAY
from penstock.record import ENTRY_SCHEMA, Header, Mode, Op
from penstock.sources.postgres.catalog.table_layout import Layout, Packed
from penstock.sources.postgres.rows.row_entries import now, text_array
from penstock.sources.postgres.rows.row_fields import UNCHANGED, Places
from penstock.sources.postgres.rows.row_json import Indexes, Texts, data_of, keys_of, old_keys_of
from penstock.sources.postgres.rows.scratch import Scratch
from penstock.sources.postgres.rows.value_json import Out, copy_bytes
from penstock.sources.postgres.stream.change_positions import POSITION_ROOM, write_change_position
from penstock.sources.postgres.stream.pgoutput import ChangeOp, Changes

_OPS = {
    ChangeOp.INSERT: Op.INSERT,
    ChangeOp.UPDATE: Op.UPDATE,
    ChangeOp.DELETE: Op.DELETE,
    ChangeOp.TRUNCATE: Op.COMMAND,
}
_NAMES = (Header.POSITION, Header.COLUMNS, Header.KEY, Header.UNCHANGED, Header.OLD_KEY)
_POSITION, _COLUMNS, _KEY, _UNCHANGED, _OLD_KEY = range(5)
_MOST_HEADERS = len(_NAMES)
_NAME_TEXT = np.frombuffer("".join(_NAMES).encode() + bytes(8), np.uint8)
_NAME_AT = np.cumsum([0, *map(len, _NAMES)])


def change_entries(changes: Changes, layouts: Sequence[Layout], packed: Packed, scratch: Scratch) -> pa.RecordBatch:
    """The changes in order. The arrays lie over the scratch memory: good until it is used again."""
    keys = keys_of(changes.rows, changes.fields, packed, scratch)
    data = data_of(changes.rows, changes.fields, packed, scratch)
    return _entries(changes, keys, data, layouts, packed, scratch)


def keys_as_entries(changes: Changes, layouts: Sequence[Layout], packed: Packed, scratch: Scratch) -> pa.RecordBatch:
    """The same for changes whose rows are too large to be written out: their keys stand for them."""
    keys = keys_of(changes.rows, changes.fields, packed, scratch)
    return _entries(changes, keys, keys, layouts, packed, scratch)


def _entries(
    changes: Changes, keys: Texts, data: Texts, layouts: Sequence[Layout], packed: Packed, scratch: Scratch
) -> pa.RecordBatch:
    count = len(changes.op)
    return pa.RecordBatch.from_arrays(
        [
            now(count),
            _chosen([layout.namespace for layout in layouts], changes.layout),
            _chosen([str(_OPS[op]) for op in ChangeOp], changes.op.astype(np.int32)),
            pa.repeat(str(Mode.SYNC), count),
            text_array(keys, pa.string(), valid=np.diff(keys.offsets) > 0),
            _headers(changes, keys, packed, scratch),
            text_array(data, pa.binary()),
        ],
        schema=ENTRY_SCHEMA,
    )


def _chosen(texts: list[str], which: Indexes) -> pa.Array:
    indices = pa.Array.from_buffers(pa.int32(), len(which), [None, pa.py_buffer(np.ascontiguousarray(which))])
    return pa.array(texts, pa.string()).take(indices)


def _headers(changes: Changes, keys: Texts, packed: Packed, scratch: Scratch) -> pa.Array:
    count = len(changes.op)
    if (changes.first_old >= 0).any():
        old = old_keys_of(changes.old_rows, changes.fields, packed, scratch)
    else:
        old = Texts(keys.out, np.zeros(count + 1, np.int32))
    leaves_out = bool((changes.fields.starts == UNCHANGED).any())
    per_layout = np.bincount(changes.layout, minlength=len(packed.first_column) - 1)
    headers = packed.header_at[2::2] - packed.header_at[:-2:2]
    labels = packed.label_at[packed.first_column[1:]] - packed.label_at[packed.first_column[:-1]]
    fixed = headers + np.diff(packed.position_at) + POSITION_ROOM + (labels + 2 if leaves_out else 0)
    out = _Headers(
        scratch.bytes("header.names", count * int(_NAME_AT[-1]) + 8),
        scratch.int32("header.name_ends", count * _MOST_HEADERS + 1),
        scratch.bytes("header.values", int(per_layout @ fixed) + int(old.offsets[-1]) + 8),
        scratch.int32("header.value_ends", count * _MOST_HEADERS + 1),
        scratch.int32("header.ends", count + 1),
    )
    total = _write_headers(changes, packed, leaves_out, keys, old, out)
    return pa.MapArray.from_arrays(
        pa.Array.from_buffers(pa.int32(), count + 1, [None, pa.py_buffer(out.ends)]),
        text_array(Texts(out.names, out.name_ends[: total + 1]), pa.string()),
        text_array(Texts(out.values, out.value_ends[: total + 1]), pa.string()),
    )


class _Headers(NamedTuple):
    """Names and values of headers, end to end, and the number of the last one of each change."""

    names: Out
    name_ends: Indexes
    values: Out
    value_ends: Indexes
    ends: Indexes


@compiled
def _write_headers(changes: Changes, packed: Packed, leaves_out: bool, keys: Texts, old: Texts, out: _Headers) -> int:
    """The headers of every change; how many there are in all."""
    out.name_ends[0] = out.value_ends[0] = out.ends[0] = 0
    values = out.values
    total = 0
    for row in range(len(changes.layout)):
        table = changes.layout[row]
        begin, end = packed.position_at[table], packed.position_at[table + 1]
        at = copy_bytes(packed.positions, begin, end, values, int(out.value_ends[total]))
        at = write_change_position(changes.commit[row], changes.number[row], changes.time[row], values, at)
        total = _end(_POSITION, out, at, total)
        begin, middle = packed.header_at[2 * table], packed.header_at[2 * table + 1]
        end = packed.header_at[2 * table + 2]
        at = copy_bytes(packed.headers, begin, middle, values, at)
        total = _end(_COLUMNS, out, at, total)
        if middle < end:
            at = copy_bytes(packed.headers, middle, end, values, at)
            total = _end(_KEY, out, at, total)
        if leaves_out and changes.first_field[row] >= 0:
            before = at
            at = _write_left_out(changes.fields.starts, changes.first_field[row], packed, table, values, at)
            if at != before:
                total = _end(_UNCHANGED, out, at, total)
        begin, end = old.offsets[row], old.offsets[row + 1]
        if begin < end and _differ(old.out, begin, end, keys.out, keys.offsets[row], keys.offsets[row + 1]):
            at = copy_bytes(old.out, begin, end, values, at)
            total = _end(_OLD_KEY, out, at, total)
        out.ends[row + 1] = total
    return total


@compiled
def _end(which: int, out: _Headers, at: int, total: int) -> int:
    """A header's value ends at ``at``: give it its name; the number of headers now."""
    begin, end = _NAME_AT[which], _NAME_AT[which + 1]
    out.name_ends[total + 1] = copy_bytes(_NAME_TEXT, begin, end, out.names, int(out.name_ends[total]))
    out.value_ends[total + 1] = at
    return total + 1


@compiled
def _write_left_out(starts: Places, field: int, packed: Packed, table: int, values: Out, at: int) -> int:
    """The names of the columns that are not there, as a JSON array; nothing if all are."""
    begin = at
    for column in range(packed.first_column[table], packed.first_column[table + 1]):
        if starts[field] == UNCHANGED:
            values[at] = OPEN_ARRAY if at == begin else COMMA
            # A label is the name in quotes and a colon.
            at = copy_bytes(packed.labels, packed.label_at[column], packed.label_at[column + 1] - 1, values, at + 1)
        field += 1
    if at != begin:
        values[at] = CLOSE_ARRAY
        at += 1
    return at


@compiled
def _differ(one: Bytes, start: int, end: int, other: Bytes, other_start: int, other_end: int) -> bool:
    if end - start != other_end - other_start:
        return True
    for i in range(end - start):
        if one[start + i] != other[other_start + i]:
            return True
    return False
