"""Entries for the log from what was read: Arrow arrays over the buffers that compiled code has filled."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.log.format.frame import MAX_FRAME_BYTES
from penstock.log.group_commit import Entry, entry_batch
from penstock.record import ENTRY_SCHEMA, Header, Mode, Op, int64_array
from penstock.sources.postgres.catalog.table_layout import Layout, compact
from penstock.sources.postgres.progress import CopiedTable
from penstock.sources.postgres.rows.row_json import Texts
from penstock.sources.postgres.stream_position import copy_position

FRAME_BYTES = 16 * 2**20
"""About how much goes into the log at a time."""
LARGEST_ROW = MAX_FRAME_BYTES - 2**20
NO_ROW = "{}"
"""The key of entries about a copy. Without a key, compaction would take them for newer versions of a truncate."""

_TIMESTAMP = ENTRY_SCHEMA.field("timestamp").type


def row_entries(data: Texts, keys: Texts | None, layout: Layout, position: str) -> pa.RecordBatch:
    """The copied rows of a table."""
    count = len(data.offsets) - 1
    return pa.RecordBatch.from_arrays(
        [
            now(count),
            pa.repeat(layout.namespace, count),
            pa.repeat(str(Op.INSERT), count),
            pa.repeat(str(Mode.COPY), count),
            pa.nulls(count, pa.string()) if keys is None else text_array(keys, pa.string()),
            _alike(headers_of(layout, position), count),
            text_array(data, pa.binary()),
        ],
        schema=ENTRY_SCHEMA,
    )


def truncate_entry(layout: Layout, position: str, first: bool = False) -> pa.RecordBatch:
    """Says that the log's entries of a table so far are void: its rows are copied again. ``first``: there are none, and
    only what a target has from elsewhere is void."""
    data = {"truncate": True, "first": True} if first else {"truncate": True}
    return _one(layout, position, Op.COMMAND, Mode.COPY, data)


def complete_entry(layout: Layout, position: str, rows: int) -> pa.RecordBatch:
    """Says that all rows of a table are in the log; for an empty table it also gives the columns."""
    return _one(layout, position, Op.NOOP, Mode.COMPLETE, {"rows": rows}, key=NO_ROW)


def void_entry(namespace: str, copied: CopiedTable) -> pa.RecordBatch:
    """Says that changes of a table are missed from here on. Its entries so far stay, but are out of date."""
    position = ((str(Header.POSITION), copy_position(copied.slot, copied.oid, copied.snapshot)),)
    entry = Entry(_micros(), namespace, NO_ROW, position, b'{"left":true}', str(Op.NOOP), str(Mode.COPY))
    return entry_batch([entry])


def headers_of(layout: Layout, position: str) -> tuple[tuple[str, str], ...]:
    common = ((str(Header.POSITION), position), (str(Header.COLUMNS), layout.columns_header))
    return common if layout.key_header is None else (*common, (str(Header.KEY), layout.key_header))


def fitting(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in pieces of about ``FRAME_BYTES``; a row that fits no frame is replaced by ``too_large``."""
    if batch.nbytes <= FRAME_BYTES or (batch.num_rows == 1 and batch.nbytes <= LARGEST_ROW):
        yield batch
    elif batch.num_rows == 1:
        yield too_large(batch, batch.nbytes)
    else:
        half = batch.num_rows // 2
        yield from fitting(batch.slice(0, half))
        yield from fitting(batch.slice(half))


def too_large(entry: pa.RecordBatch, size: int) -> pa.RecordBatch:
    """The entry in place of a row that is too large for the log: it has the row's key; routes count it as failed."""
    (row,) = entry.drop_columns("data").to_pylist()
    why = f"the row has {size} bytes, and one record of the log has room for {LARGEST_ROW}"
    headers = ((str(Header.MALFORMED), why), *row["headers"])
    data = (row["key"] or "{}").encode()
    return entry_batch([Entry(_micros(), row["namespace"], row["key"], headers, data, row["op"], row["mode"])])


def now(count: int) -> pa.Array:
    return int64_array(np.full(count, _micros(), np.int64)).view(_TIMESTAMP)


def text_array(texts: Texts, kind: pa.DataType, valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    nulls = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(
        kind, len(texts.offsets) - 1, [nulls, pa.py_buffer(texts.offsets), pa.py_buffer(texts.out)]
    )


def _one(layout: Layout, position: str, op: Op, mode: Mode, data: object, key: str | None = None) -> pa.RecordBatch:
    headers = headers_of(layout, position)
    text = compact(data).encode()
    return entry_batch([Entry(_micros(), layout.namespace, key, headers, text, str(op), str(mode))])


def _alike(headers: Sequence[tuple[str, str]], count: int) -> pa.Array:
    """The same headers for so many entries."""
    names = [name.encode() for name, _ in headers]
    values = [value.encode() for _, value in headers]
    ends = np.arange(count + 1, dtype=np.int32) * len(headers)
    return pa.MapArray.from_arrays(
        pa.Array.from_buffers(pa.int32(), count + 1, [None, pa.py_buffer(ends)]),
        _repeated(names, count),
        _repeated(values, count),
    )


def _repeated(texts: list[bytes], count: int) -> pa.Array:
    lengths = np.tile(np.array([len(text) for text in texts], np.int32), count)
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(
        pa.string(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(texts) * count)]
    )


def _micros() -> int:
    return time.time_ns() // 1000
