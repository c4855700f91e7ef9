"""Changes as entries for the log: op, row, key, and the headers that tell them apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.compiled import Bytes, compiled
from penstock.json.tokens import CLOSE_ARRAY, COMMA, OPEN_ARRAY
from penstock.record import ENTRY_SCHEMA, Header, Mode, Op
from penstock.sources.postgres.catalog.table_layout import Layout, Packed
from penstock.sources.postgres.rows.row_entries import now, text_array
from penstock.sources.postgres.rows.row_fields import UNCHANGED, Places
from penstock.sources.postgres.rows.row_json import Indexes, Numbers, Texts, data_of, keys_of, old_keys_of
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
    names = scratch.bytes("header.names", count * int(_NAME_AT[-1]) + 8)
    name_ends = scratch.int32("header.name_ends", count * _MOST_HEADERS + 1)
    values = scratch.bytes("header.values", int(per_layout @ fixed) + int(old.offsets[-1]) + 8)
    value_ends = scratch.int32("header.value_ends", count * _MOST_HEADERS + 1)
    ends = scratch.int32("header.ends", count + 1)
    total = _write_headers(
        changes.layout, changes.commit, changes.number, changes.time, changes.first_field, leaves_out,
        changes.fields.starts, packed.first_column, packed.labels, packed.label_at,
        packed.headers, packed.header_at, packed.positions, packed.position_at, *keys, *old,
        _NAME_TEXT, _NAME_AT, names, name_ends, values, value_ends, ends,
    )  # fmt: skip
    return pa.MapArray.from_arrays(
        pa.Array.from_buffers(pa.int32(), count + 1, [None, pa.py_buffer(ends)]),
        text_array(Texts(names, name_ends[: total + 1]), pa.string()),
        text_array(Texts(values, value_ends[: total + 1]), pa.string()),
    )


@compiled
def _write_headers(
    layout: Indexes,
    commit: Numbers,
    number: Numbers,
    time: Numbers,
    first_field: Numbers,
    leaves_out: bool,
    starts: Places,
    first_column: Indexes,
    labels: Bytes,
    label_at: Indexes,
    headers: Bytes,
    header_at: Indexes,
    positions: Bytes,
    position_at: Indexes,
    keys: Bytes,
    key_at: Indexes,
    old: Bytes,
    old_at: Indexes,
    name_text: Bytes,
    name_at: Numbers,
    names: Out,
    name_ends: Indexes,
    values: Out,
    value_ends: Indexes,
    ends: Indexes,
) -> int:
    """The headers of every change; how many there are in all."""
    name_ends[0] = value_ends[0] = ends[0] = 0
    total = 0
    for row in range(len(layout)):
        table = layout[row]
        at = copy_bytes(positions, position_at[table], position_at[table + 1], values, int(value_ends[total]))
        at = write_change_position(commit[row], number[row], time[row], values, at)
        total = _end(_POSITION, name_text, name_at, names, name_ends, value_ends, at, total)
        at = copy_bytes(headers, header_at[2 * table], header_at[2 * table + 1], values, at)
        total = _end(_COLUMNS, name_text, name_at, names, name_ends, value_ends, at, total)
        if header_at[2 * table + 1] < header_at[2 * table + 2]:
            at = copy_bytes(headers, header_at[2 * table + 1], header_at[2 * table + 2], values, at)
            total = _end(_KEY, name_text, name_at, names, name_ends, value_ends, at, total)
        if leaves_out and first_field[row] >= 0:
            begin = at
            at = _write_left_out(
                starts, first_field[row], first_column[table], first_column[table + 1], labels, label_at, values, at
            )
            if at != begin:
                total = _end(_UNCHANGED, name_text, name_at, names, name_ends, value_ends, at, total)
        if old_at[row] < old_at[row + 1] and _differ(
            old, old_at[row], old_at[row + 1], keys, key_at[row], key_at[row + 1]
        ):
            at = copy_bytes(old, old_at[row], old_at[row + 1], values, at)
            total = _end(_OLD_KEY, name_text, name_at, names, name_ends, value_ends, at, total)
        ends[row + 1] = total
    return total


@compiled
def _end(
    which: int,
    name_text: Bytes,
    name_at: Numbers,
    names: Out,
    name_ends: Indexes,
    value_ends: Indexes,
    at: int,
    total: int,
) -> int:
    """A header's value ends at ``at``: give it its name; the number of headers now."""
    name_ends[total + 1] = copy_bytes(name_text, name_at[which], name_at[which + 1], names, int(name_ends[total]))
    value_ends[total + 1] = at
    return total + 1


@compiled
def _write_left_out(
    starts: Places, field: int, first: int, last: int, labels: Bytes, label_at: Indexes, values: Out, at: int
) -> int:
    """The names of the columns that are not there, as a JSON array; nothing if all are."""
    begin = at
    for column in range(first, last):
        if starts[field + column - first] == UNCHANGED:
            values[at] = OPEN_ARRAY if at == begin else COMMA
            # A label is the name in quotes and a colon.
            at = copy_bytes(labels, label_at[column], label_at[column + 1] - 1, values, at + 1)
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
