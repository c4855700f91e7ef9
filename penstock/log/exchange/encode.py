"""Records as Transporter's entries: a whole batch at once, by Arrow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.exchange.entry_layout import HEAD, LENGTHS_BYTES, MODES, OP_SHIFT, OPS, SECOND


def encode(records: pa.RecordBatch) -> pa.Buffer:
    """Records (``RECORD_SCHEMA``) as entries, one after the other. What the layout has no room for is left out."""
    namespaces = records.column("namespace").cast(pa.binary())
    data = pc.fill_null(records.column("data"), b"")
    key_length, data_length = (pc.binary_length(column).to_numpy() for column in (namespaces, data))
    head = np.empty(records.num_rows, HEAD)
    head["offset"] = records.column("offset").to_numpy()
    head["length"] = key_length + data_length + LENGTHS_BYTES
    head["timestamp"] = records.column("timestamp").to_numpy(zero_copy_only=False).view(np.int64) // SECOND
    head["mode"] = _codes(records.column("mode"), MODES) | _codes(records.column("op"), OPS) << OP_SHIFT
    head["key_length"] = key_length
    joined = pc.binary_join_element_wise(_cells(head), namespaces, _cells(data_length.astype(">u4")), data, b"")
    _, places, content = joined.buffers()
    ends = np.frombuffer(places, np.int32)
    return content.slice(0, int(ends[len(joined)]))


def _codes(words: pa.Array, known: Sequence[str]) -> npt.NDArray[np.int32]:
    codes: npt.NDArray[np.int32] = pc.index_in(words, pa.array([str(word) for word in known])).to_numpy()
    return codes


def _cells(values: npt.NDArray[np.void] | npt.NDArray[np.uint32]) -> pa.BinaryArray:
    """The bytes of every value as an array of their own."""
    width = values.dtype.itemsize
    places = np.arange(0, (len(values) + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(places), pa.py_buffer(values.tobytes())])
