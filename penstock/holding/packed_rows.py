"""Rows of numbers as few bytes: what travels between tasks and what a state keeps is mostly such rows.

A row has its columns side by side, and most of them hardly change from row to row: offsets, stamps, times and flags
take next to nothing as differences (``packed_numbers.py``). Keys are random, but come again: each is written once. A
few rows are written as they are. The first byte says which of both it is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from penstock.holding.item_columns import Column, ItemColumns

Rows = npt.NDArray[np.void]

KEY_COLUMNS = ("high", "low")
FEW_BYTES = 4096
"""Rows that take no more are written as they are."""
ROWS_AT_A_TIME = 1 << 13
"""Rows are filled column by column, in pieces that stay in the processor's cache meanwhile."""

_AS_THEY_ARE, _PACKED = b"\0", b"\1"
_HEAD = struct.Struct("<cIIH")
"""What it is, how many rows, how many different keys, and the bytes of the names of the columns."""


def pack_rows(rows: Rows, leave_out: Sequence[str] = ()) -> bytes:
    """Rows of integers and floats, without some of their columns. No rows are no bytes."""
    if 0 < rows.nbytes <= FEW_BYTES:
        return _AS_THEY_ARE + _without(rows, leave_out).tobytes()
    return _pack(ItemColumns.of_rows(rows), leave_out)


def pack_columns(columns: ItemColumns, leave_out: Sequence[str] = ()) -> bytes:
    """The same of rows that are there column by column."""
    if 0 < len(columns) * columns.kind.itemsize <= FEW_BYTES:
        return pack_rows(columns.to_rows(), leave_out)
    return _pack(columns, leave_out)


def unpack_rows(blobs: Iterable[bytes], kind: np.dtype[np.void]) -> Rows:
    """The rows of all blobs. Columns that were left out are 0."""
    found = [blob for blob in blobs if len(blob)]
    ends = np.cumsum([0, *(_count_rows(blob, kind) for blob in found)]).tolist()
    rows = np.zeros(ends[-1], kind)
    for blob, start, end in zip(found, ends, ends[1:], strict=False):
        if blob[:1] == _AS_THEY_ARE:
            rows[start:end] = np.frombuffer(blob, kind, offset=len(_AS_THEY_ARE))
        else:
            _fill(rows[start:end], _unpack(blob))
    return rows


def _pack(columns: ItemColumns, leave_out: Sequence[str]) -> bytes:
    if len(columns) == 0:
        return b""
    # Imported here: what only plans a query must not load the compiler.
    from penstock.holding.key_table import KeyTable
    from penstock.holding.packed_numbers import SLACK, most_bytes, write_numbers

    names = [name for name in columns.kind.names or () if name not in leave_out]
    numbers = [_as_numbers(columns[name]) for name in names if name not in KEY_COLUMNS]
    keys, known = b"", 0
    if len(numbers) < len(names):
        table = KeyTable()
        of_keys, known = table.add(*(np.ascontiguousarray(columns[name]) for name in KEY_COLUMNS))
        keys = table.high[:known].tobytes() + table.low[:known].tobytes()
        numbers.insert(0, of_keys)
    text = ",".join(name for name in names if name not in KEY_COLUMNS).encode()
    out, end = np.empty(len(numbers) * most_bytes(len(columns)), np.uint8), 0
    for column in numbers:
        end = write_numbers(column, out, end)
    out[end : end + SLACK] = 0
    head = _HEAD.pack(_PACKED, len(columns), known, len(text))
    return b"".join([head, text, keys, out[: end + SLACK].data])


def _count_rows(blob: bytes, kind: np.dtype[np.void]) -> int:
    if blob[:1] == _AS_THEY_ARE:
        return (len(blob) - len(_AS_THEY_ARE)) // kind.itemsize
    count: int = _HEAD.unpack_from(blob)[1]
    return count


def _unpack(blob: bytes) -> dict[str, Column]:
    from penstock.holding.packed_numbers import read_numbers

    _, count, known, size = _HEAD.unpack_from(blob)
    at = _HEAD.size + size
    names = blob[_HEAD.size : at].decode().split(",") if size else []
    columns: dict[str, Column] = {}
    content = np.frombuffer(blob, np.uint8)
    content.flags.writeable = False
    if known:
        keys = np.frombuffer(blob, np.uint64, 2 * known, at).reshape(2, known)
        of_keys = np.empty(count, np.int64)
        at = read_numbers(content, at + keys.nbytes, of_keys)
        columns = {name: half[of_keys] for name, half in zip(KEY_COLUMNS, keys, strict=True)}
    for name in names:
        columns[name] = np.empty(count, np.int64)
        at = read_numbers(content, at, columns[name])
    return columns


def _fill(rows: Rows, columns: Mapping[str, Column]) -> None:
    kind = rows.dtype
    for start in range(0, len(rows), ROWS_AT_A_TIME):
        piece = slice(start, start + ROWS_AT_A_TIME)
        for name, column in columns.items():
            # Numbers of eight bytes travel as whole ones of the same bits.
            rows[piece][name] = column[piece].view(kind[name]) if kind[name].itemsize == 8 else column[piece]


def _without(rows: Rows, leave_out: Sequence[str]) -> Rows:
    if not leave_out:
        return rows
    kept = rows.copy()
    for name in leave_out:
        kept[name] = 0
    return kept


def _as_numbers(column: Column) -> npt.NDArray[np.int64]:
    whole = np.ascontiguousarray(column)
    return whole.view(np.int64) if whole.itemsize == 8 else whole.astype(np.int64)
