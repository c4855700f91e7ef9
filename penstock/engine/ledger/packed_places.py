"""Places of items as bytes, for a column of the ledger.

Thousands of groups may wait, most of them with one item, and each batch may replace them all. So plain places are a row
of numbers, packed for all groups at once; an Arrow stream per group would take longer than the rest of the commit.
Places with notes of a holding step are such a stream, and so are those of an older release.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.outcome import PLACE_COLUMNS, PLACE_SCHEMA

PLAIN = b"\x01"
"""What plain places begin with. A stream of Arrow begins with another byte."""

_PLACE = np.dtype([("partition", "<i4"), ("offset", "<i8"), ("item", "<i8")])
_Rows = npt.NDArray[np.void]


@dataclass(frozen=True)
class PackedPlaces:
    """The places of many groups."""

    groups: list[bytes]
    first_offsets: list[tuple[int, int, int]]
    """The number of each group in the list, the partitions that it has, and its first offset there."""


def pack_places(groups: Sequence[pa.RecordBatch]) -> PackedPlaces:
    plain = [places.schema.names == PLACE_COLUMNS for places in groups]
    rows = _rows(groups)
    ends = np.cumsum([places.num_rows for places in groups])
    packed, start = [], 0
    content = rows.tobytes()
    for places, is_plain, rows_before_end in zip(groups, plain, ends.tolist(), strict=True):
        end = rows_before_end * _PLACE.itemsize
        packed.append(PLAIN + content[start:end] if is_plain else _stream(places))
        start = end
    return PackedPlaces(packed, _first_offsets(rows, ends))


def unpack_places(packed: bytes) -> pa.RecordBatch:
    if packed[:1] != PLAIN:
        with pa.ipc.open_stream(packed) as reader:
            return reader.read_next_batch()
    rows = np.frombuffer(packed, _PLACE, offset=1)
    columns = [pa.array(np.ascontiguousarray(rows[name])) for name in PLACE_COLUMNS]
    return pa.RecordBatch.from_arrays(columns, schema=PLACE_SCHEMA)


def _first_offsets(rows: _Rows, ends: npt.NDArray[np.int64]) -> list[tuple[int, int, int]]:
    owners = np.searchsorted(ends, np.arange(len(rows)), "right")
    order = np.lexsort((rows["offset"], rows["partition"], owners))
    owners, partitions, offsets = owners[order], rows["partition"][order], rows["offset"][order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (owners[1:] != owners[:-1]) | (partitions[1:] != partitions[:-1])
    return list(zip(owners[new].tolist(), partitions[new].tolist(), offsets[new].tolist(), strict=True))


def _rows(groups: Sequence[pa.RecordBatch]) -> _Rows:
    same = [
        places if places.schema == PLACE_SCHEMA else places.select(PLACE_COLUMNS).cast(PLACE_SCHEMA)
        for places in groups
    ]
    table = pa.Table.from_batches(same, PLACE_SCHEMA)
    rows = np.empty(table.num_rows, _PLACE)
    for name in PLACE_COLUMNS:
        rows[name] = table.column(name).to_numpy()
    return rows


def _stream(places: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, places.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(places)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed
