"""Rows of numbers as few bytes: what travels between tasks and what a state keeps is mostly such rows.

A row has its columns side by side, and most of them hardly change from row to row: offsets, stamps, times and flags
take next to nothing as differences. Keys are random, but come again: each is written once. Parquet does both, at the
cost of a kilobyte for itself, so a few rows are written as they are. The first byte says which of both it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.holding.item_columns import ItemColumns

Rows = npt.NDArray[np.void]

KEY_COLUMNS = ("high", "low")
FEW_BYTES = 4096
"""Rows that take no more are written as they are."""
ROWS_AT_A_TIME = 1 << 13
"""Rows are filled column by column, in pieces that stay in the processor's cache meanwhile."""

_AS_THEY_ARE = b"\0"
"""Before rows that are. Parquet has a P there."""


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


def _pack(columns: ItemColumns, leave_out: Sequence[str] = ()) -> bytes:
    if len(columns) == 0:
        return b""
    names = [name for name in columns.kind.names or () if name not in leave_out]
    table = pa.Table.from_arrays([pa.array(_signed(columns[name])) for name in names], names)
    out = pa.BufferOutputStream()
    pq.write_table(table, out, **_options(columns.kind, tuple(names)))
    packed: bytes = out.getvalue().to_pybytes()
    return packed


def unpack_rows(blobs: Iterable[bytes], kind: np.dtype[np.void]) -> Rows:
    """The rows of all blobs. Columns that were left out are 0."""
    found = [_read(blob, kind) for blob in blobs if len(blob)]
    ends = np.cumsum([0, *map(len, found)]).tolist()
    rows = np.zeros(ends[-1], kind)
    for piece, start, end in zip(found, ends, ends[1:], strict=False):
        if isinstance(piece, pa.Table):
            _fill(rows[start:end], piece)
        else:
            rows[start:end] = piece
    return rows


def _read(blob: bytes, kind: np.dtype[np.void]) -> pa.Table | Rows:
    if blob[:1] == _AS_THEY_ARE:
        return np.frombuffer(blob, kind, offset=len(_AS_THEY_ARE))
    # Reading it as a data set would take half a millisecond more, however few rows it has.
    return pq.ParquetFile(pa.BufferReader(blob)).read(use_threads=False)


def _fill(rows: Rows, table: pa.Table) -> None:
    kind, columns = rows.dtype, {name: table.column(name).to_numpy() for name in table.column_names}
    for start in range(0, len(rows), ROWS_AT_A_TIME):
        piece = slice(start, start + ROWS_AT_A_TIME)
        for name, column in columns.items():
            # Unsigned numbers travel as signed ones of the same bits.
            rows[piece][name] = column[piece].view(kind[name]) if kind[name].kind == "u" else column[piece]


def _without(rows: Rows, leave_out: Sequence[str]) -> Rows:
    if not leave_out:
        return rows
    kept = rows.copy()
    for name in leave_out:
        kept[name] = 0
    return kept


def _signed(column: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    whole = np.ascontiguousarray(column)
    return whole.view(f"<i{whole.itemsize}") if whole.dtype.kind == "u" else whole


@cache
def _options(kind: np.dtype[np.void], names: tuple[str, ...]) -> dict[str, object]:
    integers = [name for name in names if name not in KEY_COLUMNS and kind[name].kind in "iu"]
    return {
        "compression": "lz4",
        "use_dictionary": [name for name in names if name in KEY_COLUMNS],
        "column_encoding": dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
        "write_statistics": False,
        "store_schema": False,
        "dictionary_pagesize_limit": 1 << 26,
    }
