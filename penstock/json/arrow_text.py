"""Converts JSON values in place to Arrow arrays of text, verbatim or unquoted, and text back to JSON strings."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.compiled import Bytes, compiled
from penstock.json.documents import documents
from penstock.json.find import Found, Spans
from penstock.json.strings import unescape
from penstock.json.tokens import ABSENT, BACKSLASH, QUOTE, STRING
from penstock.json.words import load_word, store_word

Flags = npt.NDArray[np.bool_]


def quoted(text: str) -> bytes:
    """One text as a JSON string."""
    return json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")


def verbatim_values(found: Found, path: int) -> pa.BinaryArray:
    """The values at a path exactly as they are written; null where there is none."""
    there = found.kind[:, path] != ABSENT
    starts, ends = found.value_start[:, path], found.value_end[:, path]
    return gathered(found.buffer, starts, np.where(there, ends - starts, 0), there)


def gathered(buffer: Bytes, starts: Spans, lengths: Spans, valid: Flags | None = None) -> pa.BinaryArray:
    """Stretches of a buffer as an array of their own; null where they are not ``valid``."""
    offsets = offsets_of_lengths(lengths)
    out = np.empty(offsets[-1], np.uint8)
    _gather(buffer, starts, offsets, out)
    return arrow_array(pa.binary(), out, offsets, valid)


def text_of(found: Found, path: int) -> pa.StringArray:
    """The text of strings, and any other value as it is written; empty where there is no value."""
    starts, ends = found.value_start[:, path], found.value_end[:, path]
    out = np.empty(int((ends - starts).sum()), np.uint8)
    offsets = _gather_text(found.buffer, np.ascontiguousarray(found.kind[:, path]), starts, ends, out)
    return arrow_array(pa.string(), out[: offsets[-1]], offsets)


def quote(text: pa.StringArray) -> pa.BinaryArray:
    """Each text as a JSON string. Nulls become empty."""
    docs = documents(text)
    lengths = _quoted_lengths(docs.buffer, docs.offsets)
    offsets = offsets_of_lengths(lengths)
    out = np.empty(offsets[-1], np.uint8)
    _quote_all(docs.buffer, docs.offsets, out)
    return arrow_array(pa.binary(), out, offsets)


def spread(array: pa.Array, length: int) -> pa.Array:
    """An array of one row as one of ``length`` equal rows."""
    return pa.repeat(array[0], length) if len(array) == 1 and length != 1 else array


def offsets_of_lengths(lengths: Spans) -> Spans:
    """Offsets of values with these lengths, laid end to end."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def arrow_array(kind: pa.DataType, out: Bytes, offsets: Spans, valid: Flags | None = None) -> pa.Array:
    """An Arrow array over bytes and offsets that are already laid out."""
    nulls = None
    if valid is not None and not valid.all():
        nulls = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(
        kind, len(offsets) - 1, [nulls, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(out)]
    )


@compiled
def copy_bytes(source: Bytes, start: int, end: int, out: npt.NDArray[np.uint8], at: int) -> int:
    """Copy ``source[start:end]`` to ``out`` from ``at`` on, a word at a time; the index after it."""
    i = start
    while i + 8 <= end:
        store_word(out, at, load_word(source, i))
        i += 8
        at += 8
    while i < end:
        out[at] = source[i]
        i += 1
        at += 1
    return at


@compiled
def _gather(buf: Bytes, starts: Spans, offsets: Spans, out: npt.NDArray[np.uint8]) -> None:
    for row in range(len(starts)):
        length = offsets[row + 1] - offsets[row]
        copy_bytes(buf, starts[row], starts[row] + length, out, offsets[row])


@compiled
def _gather_text(
    buf: Bytes, kind: npt.NDArray[np.int8], starts: Spans, ends: Spans, out: npt.NDArray[np.uint8]
) -> Spans:
    offsets = np.zeros(len(kind) + 1, np.int64)
    at = 0
    for row in range(len(kind)):
        if kind[row] == STRING:
            at = unescape(buf, starts[row] + 1, ends[row] - 1, out, at)
        elif kind[row] != ABSENT:
            at = copy_bytes(buf, starts[row], ends[row], out, at)
        offsets[row + 1] = at
    return offsets


@compiled
def write_character(byte: int, out: npt.NDArray[np.uint8], at: int) -> int:
    """Write a byte of text as it appears in a JSON string; returns the index after it."""
    if byte < 0x20:
        out[at] = BACKSLASH
        out[at + 1] = 0x75
        out[at + 2] = 0x30
        out[at + 3] = 0x30
        out[at + 4] = 0x30 + (byte >> 4)
        low = byte & 0x0F
        out[at + 5] = 0x30 + low if low < 10 else 0x57 + low
        return at + 6
    if byte == QUOTE or byte == BACKSLASH:
        out[at] = BACKSLASH
        at += 1
    out[at] = byte
    return at + 1


@compiled
def _quoted_lengths(buf: Bytes, offsets: Spans) -> Spans:
    lengths = np.empty(len(offsets) - 1, np.int64)
    for row in range(len(lengths)):
        length = 2
        for i in range(offsets[row], offsets[row + 1]):
            c = buf[i]
            length += 6 if c < 0x20 else 2 if c in (QUOTE, BACKSLASH) else 1
        lengths[row] = length
    return lengths


@compiled
def _quote_all(buf: Bytes, offsets: Spans, out: npt.NDArray[np.uint8]) -> None:
    at = 0
    for row in range(len(offsets) - 1):
        out[at] = QUOTE
        at += 1
        for i in range(offsets[row], offsets[row + 1]):
            at = write_character(buf[i], out, at)
        out[at] = QUOTE
        at += 1
