"""Values as text, gathered from the documents straight into an Arrow string array.

A string gives its characters, a number or a boolean its JSON text, an array its JSON without whitespace between tokens
(strings and numbers inside it stay as they were written).

Text is always valid UTF-8. Half a surrogate pair, which UTF-8 cannot hold, stays in a string as the six characters of
its escape (``x\\ud800``): nothing is replaced or dropped. NUL (``\\u0000``) is a character like any other here; for
engines that cannot store it, the load removes it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.compiled import Bytes, compiled
from penstock.flatten.values.value_spans import Int32s, Int64s, Kinds, Spans
from penstock.json.strings import unescape
from penstock.json.tokens import ARRAY, BACKSLASH, INT, QUOTE, STRING
from penstock.json.words import BACKSLASHES, HIGH_BITS, LOW_BITS, first_marked_byte, load_word, store_word

_MAX_SMALL = 2**31 - 1


def text_array(spans: Spans, rows: int) -> pa.Array:
    """A string array of ``rows`` rows (a large one if its text needs 64-bit offsets), null where there is no value."""
    return _gathered(spans, rows)


def json_array(spans: Spans, rows: int) -> pa.Array:
    """The same with every value as JSON, strings in their quotes and as they were written."""
    return _gathered(_whole(spans, ARRAY), rows)


def verbatim_array(spans: Spans, rows: int) -> pa.Array:
    """The same byte for byte, with the whitespace inside of values."""
    return _gathered(_whole(spans, INT), rows)


def _whole(spans: Spans, kind: int) -> Spans:
    """Values with the quotes of strings, all treated as one kind."""
    quote = (spans.kind == STRING).astype(np.int64)
    return replace(spans, kind=np.full(len(spans), kind, np.int8), start=spans.start - quote, end=spans.end + quote)


def _gathered(spans: Spans, rows: int) -> pa.Array:
    room = int((spans.end - spans.start).sum())
    out = np.empty(room + 8, np.uint8)
    small = room <= _MAX_SMALL
    offsets: Int32s | Int64s = np.empty(rows + 1, np.int32) if small else np.empty(rows + 1, np.int64)
    used = _gather(spans.buffer, spans.start, spans.end, spans.kind, spans.row, offsets, out)
    validity = None if len(spans) == rows else validity_bitmap(spans.row, rows)
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(out[:used])]
    return pa.Array.from_buffers(pa.string() if small else pa.large_string(), rows, buffers)


def unescaped(spans: Spans) -> Spans:
    """The same values in a buffer of their own, with every escape resolved."""
    out = np.empty(int((spans.end - spans.start).sum()) + 8, np.uint8)
    offsets = np.empty(len(spans) + 1, np.int64)
    places = np.arange(len(spans), dtype=np.int32)
    _gather(spans.buffer, spans.start, spans.end, spans.kind, places, offsets, out)
    out.flags.writeable = False
    return Spans(out, spans.row, spans.kind, offsets[:-1], offsets[1:], spans.kinds)


def validity_bitmap(present: Int32s, rows: int) -> pa.Buffer:
    """An Arrow validity buffer with only the given rows set."""
    bits = np.zeros(rows, np.bool_)
    bits[present] = True
    return pa.py_buffer(np.packbits(bits, bitorder="little"))


@compiled
def _gather(
    buf: Bytes,
    start: Int64s,
    end: Int64s,
    kind: Kinds,
    row: Int32s,
    offsets: Int32s | Int64s,
    out: npt.NDArray[np.uint8],
) -> int:
    at = 0
    next_row = 0
    for k in range(len(start)):
        while next_row <= row[k]:
            offsets[next_row] = at
            next_row += 1
        if kind[k] == ARRAY:
            at = write_compact(buf, start[k], end[k], out, at)
        elif kind[k] == STRING:
            at = _write_string(buf, start[k], end[k], out, at)
        else:
            for i in range(start[k], end[k]):
                out[at] = buf[i]
                at += 1
    while next_row < len(offsets):
        offsets[next_row] = at
        next_row += 1
    return at


@compiled
def _write_string(buf: Bytes, i: int, end: int, out: npt.NDArray[np.uint8], at: int) -> int:
    """Write a string's text, a word at a time up to its first escape.

    The last word may write up to 7 bytes too many: ``out`` has room for them, and the next value overwrites them.
    """
    while i < end and i + 8 <= len(buf):
        word = load_word(buf, i)
        backslash = word ^ BACKSLASHES
        marks = (backslash - LOW_BITS) & ~backslash & HIGH_BITS
        if marks != 0 and i + first_marked_byte(marks) < end:
            break
        store_word(out, at, word)
        if end - i <= 8:
            return at + end - i
        i += 8
        at += 8
    return unescape(buf, i, end, out, at)


@compiled
def write_compact(buf: Bytes, i: int, end: int, out: npt.NDArray[np.uint8], at: int) -> int:
    """Write a well-formed JSON value without the whitespace between its tokens."""
    inside = False
    while i < end:
        c = buf[i]
        if inside:
            if c == BACKSLASH:
                out[at] = c
                at += 1
                i += 1
                c = buf[i]
            elif c == QUOTE:
                inside = False
        elif c == QUOTE:
            inside = True
        elif c <= 0x20:
            i += 1
            continue
        out[at] = c
        at += 1
        i += 1
    return at
