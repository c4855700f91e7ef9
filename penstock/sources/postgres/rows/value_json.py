"""PostgreSQL's text of a value as JSON, compiled: one function for rows that were copied and for changes.

``out`` must have room for six times the text and 16 bytes more: text is copied eight bytes at a time, and the last
word may reach past its end.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.compiled import Bytes, compiled, inlined
from penstock.json.tokens import BACKSLASH, QUOTE
from penstock.json.words import (
    BACKSLASHES,
    HIGH_BITS,
    LOW_BITS,
    QUOTES,
    SPACES,
    first_marked_byte,
    load_word,
    store_word,
)
from penstock.sources.postgres.catalog.value_kinds import Kind

Out = npt.NDArray[np.uint8]

_NUMBER = int(Kind.NUMBER)
_BOOLEAN = int(Kind.BOOLEAN)
_JSON = int(Kind.JSON)
_TIMESTAMP = int(Kind.TIMESTAMP)
_TIMESTAMPTZ = int(Kind.TIMESTAMPTZ)
_MINUS, _ZERO, _NINE, _SPACE, _T, _Z, _PLUS = 0x2D, 0x30, 0x39, 0x20, 0x54, 0x5A, 0x2B
_NULL, _TRUE, _FALSE = (np.uint64(int.from_bytes(word, "little")) for word in (b"null", b"true", b"false"))
_SHORT = np.zeros(256, np.uint8)
"""The letters that stand for characters after a backslash."""
_SHORT[list(b'"\\\b\t\n\f\r')] = list(b'"\\btnfr')
_DATE_BYTES = 10
_TIME_END = 19


@inlined
def write_value(buf: Bytes, start: int, end: int, kind: int, out: Out, at: int) -> int:
    """Write the value whose text is ``buf[start:end]``; the index after it."""
    if kind == _NUMBER:
        return _write_number(buf, start, end, out, at)
    if kind == _BOOLEAN:
        return _write_boolean(buf[start] == _T + 0x20, out, at)
    if kind == _JSON:
        return _write_json(buf, start, end, out, at)
    if kind == _TIMESTAMP or kind == _TIMESTAMPTZ:
        return _write_timestamp(buf, start, end, kind == _TIMESTAMPTZ, out, at)
    return write_text(buf, start, end, out, at)


@inlined
def write_null(out: Out, at: int) -> int:
    store_word(out, at, _NULL)
    return at + 4


@inlined
def copy_bytes(buf: Bytes, start: int, end: int, out: Out, at: int) -> int:
    """Copy as it is. Reads and writes whole words where there is room for them."""
    limit = min(len(buf), len(out) - at + start)
    i = start
    while i < end and i + 8 <= limit:
        store_word(out, at + i - start, load_word(buf, i))
        i += 8
    while i < end:
        out[at + i - start] = buf[i]
        i += 1
    return at + end - start


@compiled
def write_text(buf: Bytes, start: int, end: int, out: Out, at: int) -> int:
    """As a JSON string. The text is UTF-8 already: the session's encoding says so."""
    out[at] = QUOTE
    at += 1
    i = start
    while i < end:
        while i + 8 <= end:
            word = load_word(buf, i)
            quote = word ^ QUOTES
            backslash = word ^ BACKSLASHES
            marks = ((quote - LOW_BITS) & ~quote) | ((backslash - LOW_BITS) & ~backslash) | ((word - SPACES) & ~word)
            marks &= HIGH_BITS
            store_word(out, at, word)
            if marks != 0:
                plain = first_marked_byte(marks)
                i += plain
                at += plain
                break
            i += 8
            at += 8
        if i >= end:
            break
        c = buf[i]
        i += 1
        if c >= 0x20 and c != QUOTE and c != BACKSLASH:
            out[at] = c
            at += 1
        else:
            at = _write_escaped(c, out, at)
    out[at] = QUOTE
    return at + 1


@compiled
def _write_escaped(c: np.uint8, out: Out, at: int) -> int:
    out[at] = BACKSLASH
    if _SHORT[c]:
        out[at + 1] = _SHORT[c]
        return at + 2
    out[at + 1] = 0x75
    out[at + 2] = _ZERO
    out[at + 3] = _ZERO
    out[at + 4] = _ZERO + (c >> 4)
    low = int(c & 0x0F)
    out[at + 5] = _ZERO + low if low < 10 else 0x57 + low
    return at + 6


@compiled
def _write_number(buf: Bytes, start: int, end: int, out: Out, at: int) -> int:
    first = start + 1 if end - start > 1 and buf[start] == _MINUS else start
    if first < end and _ZERO <= buf[first] <= _NINE:
        return copy_bytes(buf, start, end, out, at)
    return write_text(buf, start, end, out, at)


@compiled
def _write_boolean(true: bool, out: Out, at: int) -> int:
    store_word(out, at, _TRUE if true else _FALSE)
    return at + 4 if true else at + 5


@compiled
def _write_json(buf: Bytes, start: int, end: int, out: Out, at: int) -> int:
    """As it stands, on one line: PostgreSQL lets bare control characters stand only between tokens."""
    for i in range(start, end):
        c = buf[i]
        out[at] = c if c >= _SPACE else _SPACE
        at += 1
    return at


@compiled
def _write_timestamp(buf: Bytes, start: int, end: int, zoned: bool, out: Out, at: int) -> int:
    """``2026-01-02 03:04:05.1+00`` with a ``T`` for its space and a ``Z`` for its zone."""
    last = end - 3 if zoned else end
    regular = (
        last - start >= _TIME_END
        and buf[start + 4] == _MINUS
        and buf[start + _DATE_BYTES] == _SPACE
        and _ZERO <= buf[last - 1] <= _NINE
        and (not zoned or (buf[last] == _PLUS and buf[last + 1] == _ZERO and buf[last + 2] == _ZERO))
    )
    if not regular:
        return write_text(buf, start, end, out, at)
    out[at] = QUOTE
    at += 1
    copy_bytes(buf, start, last, out, at)
    out[at + _DATE_BYTES] = _T
    at += last - start
    if zoned:
        out[at] = _Z
        at += 1
    out[at] = QUOTE
    return at + 1
