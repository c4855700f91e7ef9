"""Ids as bytes, and bytes as hexadecimal digits."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.otlp.span_table import Words

_DIGITS = np.frombuffer(bytes(range(256)).hex().encode(), np.uint8).reshape(256, 2)


def octets_of_words(*words: Words) -> pa.BinaryArray:
    """The big-endian bytes of numbers, those of one row behind each other."""
    rows = np.stack(words, axis=1).astype(">u8")
    width = pa.binary(8 * len(words))
    return pa.Array.from_buffers(width, len(rows), [None, pa.py_buffer(rows.tobytes())]).cast(pa.binary())


def hexadecimal_texts(octets: pa.BinaryArray) -> pa.StringArray:
    """Two lower-case digits for each byte; null stays null."""
    _, offset_buffer, data_buffer = octets.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[octets.offset : octets.offset + len(octets) + 1]
    data = np.frombuffer(data_buffer or b"", np.uint8)[offsets[0] : offsets[-1]]
    digits, places = _DIGITS[data].tobytes(), 2 * (offsets - offsets[0])
    texts = pa.StringArray.from_buffers(len(octets), pa.py_buffer(places.tobytes()), pa.py_buffer(digits))
    return pc.if_else(octets.is_valid(), texts, None) if octets.null_count else texts
