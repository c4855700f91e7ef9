"""A digest of rows, by which ClickHouse recognises rows that it has."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc


def digest(piece: pa.Table) -> bytes:
    """Equal rows have equal digests, however their arrays were made. (Arrow's bytes behind a null may differ.)"""
    seen = hashlib.blake2b(digest_size=16)
    for column in piece.columns:
        for chunk in column.chunks:
            seen.update(f"{len(chunk)} {chunk.null_count};".encode())
            if chunk.null_count:
                seen.update(chunk.is_valid().to_numpy(zero_copy_only=False))
            for content in _contents(chunk.drop_null()):
                seen.update(content)
    return seen.digest()


def _contents(array: pa.Array) -> Iterator[memoryview]:
    """The values of an array without nulls."""
    if pa.types.is_boolean(array.type):
        yield memoryview(array.to_numpy(zero_copy_only=False))
    elif pa.types.is_string(array.type):
        yield memoryview(pc.binary_length(array).to_numpy())
        _, offsets, data = array.buffers()
        if data is not None:
            ends = memoryview(offsets).cast("B").cast("i")
            yield memoryview(data)[ends[array.offset] : ends[array.offset + len(array)]]
    elif len(array):
        width = array.type.byte_width
        yield memoryview(array.buffers()[1])[array.offset * width : (array.offset + len(array)) * width]
