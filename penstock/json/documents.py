"""The bytes behind an Arrow array of JSON documents, without copying them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass(frozen=True)
class Documents:
    """Document ``i`` is ``buffer[offsets[i]:offsets[i + 1]]``, if ``valid[i]``; a null has no bytes."""

    buffer: npt.NDArray[np.uint8]
    """The array's own data buffer, read-only: positions in it are valid for the whole array it came from."""
    offsets: npt.NDArray[np.int64]
    valid: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.valid)


def documents(data: pa.Array | pa.ChunkedArray) -> Documents:
    """The documents of a (large) binary or string array. Slices are respected; a chunked array becomes one chunk."""
    if isinstance(data, pa.ChunkedArray):
        data = data.combine_chunks()
        if isinstance(data, pa.ChunkedArray):  # too long for 32-bit offsets
            data = pa.concat_arrays([chunk.cast(pa.large_binary()) for chunk in data.chunks])
    if pa.types.is_binary(data.type) or pa.types.is_string(data.type):
        width: type[np.int32] | type[np.int64] = np.int32
    elif pa.types.is_large_binary(data.type) or pa.types.is_large_string(data.type):
        width = np.int64
    else:
        raise TypeError(f"JSON documents come as binary or string arrays, not {data.type}")
    count = len(data)
    _, offset_buffer, data_buffer = data.buffers()
    if count == 0 or offset_buffer is None:
        offsets = np.zeros(count + 1, np.int64)
    else:
        offsets = np.frombuffer(offset_buffer, width, count + 1, data.offset * np.dtype(width).itemsize)
        offsets = offsets.astype(np.int64)
    valid = data.is_valid().to_numpy(zero_copy_only=False) if data.null_count else np.ones(count, np.bool_)
    return Documents(_bytes(data_buffer), offsets, valid)


def _bytes(buffer: pa.Buffer | None) -> npt.NDArray[np.uint8]:
    found = np.empty(0, np.uint8) if buffer is None or buffer.size == 0 else np.frombuffer(buffer, np.uint8)
    # numba compiles separately for writable arrays; one kind of buffer means one compilation.
    found.flags.writeable = False
    return found
