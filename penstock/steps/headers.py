"""Changes one header of rows, column by column."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def with_header(headers: pa.MapArray, name: str, value: str) -> pa.MapArray:
    """The headers with another value of this one, where it is."""
    first, count = _content(headers)
    keys, items = headers.keys.slice(first, count), headers.items.slice(first, count)
    chosen = pc.equal(keys, name)
    if pc.all(pc.or_(pc.invert(chosen), pc.equal(items, value)), min_count=0).as_py():
        return headers
    nulls = np.append(headers.is_null().to_numpy(zero_copy_only=False), False)
    offsets = pa.array(headers.offsets.to_numpy() - first, pa.int32(), mask=nulls)
    return pa.MapArray.from_arrays(offsets, keys, pc.if_else(chosen, value, items))


def without_header(headers: pa.MapArray, name: str, chosen: npt.NDArray[np.bool_]) -> pa.MapArray:
    """The headers of all rows; those of the chosen ones without this header."""
    ends = headers.offsets.to_numpy()
    first, count = int(ends[0]), int(ends[-1] - ends[0])
    keys, items = headers.keys.slice(first, count), headers.items.slice(first, count)
    rows = np.repeat(np.arange(len(headers)), np.diff(ends))
    kept = ~(pc.equal(keys, name).to_numpy(zero_copy_only=False) & chosen[rows])
    if kept.all():
        return headers
    kept_before = np.append(0, np.cumsum(kept)).astype(np.int32)
    nulls = np.append(headers.is_null().to_numpy(zero_copy_only=False), False)
    offsets = pa.array(kept_before[ends - first], pa.int32(), mask=nulls)
    return pa.MapArray.from_arrays(offsets, keys.filter(pa.array(kept)), items.filter(pa.array(kept)))


def _content(headers: pa.MapArray) -> tuple[int, int]:
    ends = headers.offsets.to_numpy()
    return int(ends[0]), int(ends[-1] - ends[0])
