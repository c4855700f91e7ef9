"""Steps over the tokens of JSON in a buffer of bytes, compiled with numba: whitespace, strings, numbers, words.

Strict: what RFC 8259 refuses is refused, with one tolerance (a byte order mark before a document). Text inside strings
must be UTF-8, so every string that passed here may go into an Arrow string array unchecked. Values that hold others are
in ``containers``.

``skip_*`` return the index after the token, or -1. Their twins ``*_end`` return, instead of -1, ``~position`` of the
byte that broke the rules, for messages.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from penstock.compiled import Bytes, borrowing, inlined
from penstock.json.words import BACKSLASHES, HIGH_BITS, LOW_BITS, QUOTES, SPACES, first_marked_byte, load_word


class Kind(IntEnum):
    """What a JSON value is. The order has no meaning except that ``ABSENT`` is zero."""

    ABSENT = 0
    NULL = 1
    FALSE = 2
    TRUE = 3
    INT = 4
    """A number without fraction and exponent, of any size."""
    FLOAT = 5
    STRING = 6
    ARRAY = 7
    OBJECT = 8


# The same as plain integers: what compiled code compares against.
ABSENT = int(Kind.ABSENT)
NULL = int(Kind.NULL)
FALSE = int(Kind.FALSE)
TRUE = int(Kind.TRUE)
INT = int(Kind.INT)
FLOAT = int(Kind.FLOAT)
STRING = int(Kind.STRING)
ARRAY = int(Kind.ARRAY)
OBJECT = int(Kind.OBJECT)

QUOTE = 0x22
BACKSLASH = 0x5C
COMMA = 0x2C
COLON = 0x3A
OPEN_OBJECT = 0x7B
CLOSE_OBJECT = 0x7D
OPEN_ARRAY = 0x5B
CLOSE_ARRAY = 0x5D
_SPACE = 0x20
_MINUS = 0x2D
_PLUS = 0x2B
_DOT = 0x2E
_ZERO = 0x30
_NINE = 0x39


@inlined
def skip_whitespace(buf: Bytes, i: int, end: int) -> int:
    """The first index from ``i`` on that is not whitespace; ``end`` if there is none."""
    while i < end:
        c = buf[i]
        if c > _SPACE or (c != 0x20 and c != 0x0A and c != 0x0D and c != 0x09):
            break
        i += 1
    return i


@borrowing
def document_start(buf: Bytes, i: int, end: int) -> int:
    """Where a document's value begins: after a byte order mark and whitespace."""
    if end - i >= 3 and buf[i] == 0xEF and buf[i + 1] == 0xBB and buf[i + 2] == 0xBF:
        i += 3
    return skip_whitespace(buf, i, end)


@borrowing
def value_kind(buf: Bytes, start: int, end: int) -> int:
    """The ``Kind`` of the well-formed value at ``[start, end)``."""
    c = buf[start]
    if c == QUOTE:
        return STRING
    if c == OPEN_OBJECT:
        return OBJECT
    if c == OPEN_ARRAY:
        return ARRAY
    if c == 0x74:
        return TRUE
    if c == 0x66:
        return FALSE
    if c == 0x6E:
        return NULL
    for k in range(start, end):
        c = buf[k]
        if c == _DOT or c == 0x65 or c == 0x45:
            return FLOAT
    return INT


@inlined
def string_end(buf: Bytes, i: int, end: int) -> int:
    """The index after the closing quote of the string that opens at ``i``; ``~position`` if it is broken."""
    if i >= end or buf[i] != QUOTE:
        return ~i
    i += 1
    while True:
        i = plain_end(buf, i, end)
        if i >= end:
            return ~i
        if buf[i] == QUOTE:
            return i + 1
        j = _special_end(buf, i, end)
        if j < 0:
            return ~i
        i = j


@inlined
def plain_end(buf: Bytes, i: int, end: int) -> int:
    """The first index from ``i`` on that holds no plain ASCII character: quote, backslash, control or UTF-8."""
    while i + 8 <= end:
        word = load_word(buf, i)
        quote = word ^ QUOTES
        backslash = word ^ BACKSLASHES
        # Per byte: zero after the exclusive or, or below a space. A borrow can mark only bytes after a true mark.
        marks = ((quote - LOW_BITS) & ~quote) | ((backslash - LOW_BITS) & ~backslash) | ((word - SPACES) & ~word) | word
        marks &= HIGH_BITS
        if marks != 0:
            return i + first_marked_byte(marks)
        i += 8
    while i < end and buf[i] != QUOTE and buf[i] != BACKSLASH and buf[i] >= 0x20 and buf[i] < 0x80:
        i += 1
    return i


@borrowing
def scalar_end(buf: Bytes, i: int, end: int) -> int:
    """The index after the string, number or word at ``i``, or ``~position``."""
    if i >= end:
        return ~i
    c = buf[i]
    if c == QUOTE:
        return string_end(buf, i, end)
    if c == 0x74:
        if end - i >= 4 and buf[i + 1] == 0x72 and buf[i + 2] == 0x75 and buf[i + 3] == 0x65:
            return i + 4
        return ~i
    if c == 0x66:
        if end - i >= 5 and buf[i + 1] == 0x61 and buf[i + 2] == 0x6C and buf[i + 3] == 0x73 and buf[i + 4] == 0x65:
            return i + 5
        return ~i
    if c == 0x6E:
        if end - i >= 4 and buf[i + 1] == 0x75 and buf[i + 2] == 0x6C and buf[i + 3] == 0x6C:
            return i + 4
        return ~i
    return number_end(buf, i, end)


@borrowing
def exponent_at(buf: Bytes, i: int, end: int) -> int:
    """The exponent of a well-formed number whose ``e`` is at ``i``; 0 if the number ends there."""
    if i == end:
        return 0
    i += 1
    down = buf[i] == _MINUS
    if down or buf[i] == _PLUS:
        i += 1
    power = 0
    while i < end:
        power = min(power * 10 + int(buf[i]) - _ZERO, 1 << 40)
        i += 1
    return -power if down else power


@borrowing
def number_end(buf: Bytes, i: int, end: int) -> int:
    """The index after the number at ``i``, or ``~position``. ``01`` ends after its zero."""
    if i < end and buf[i] == _MINUS:
        i += 1
    if i >= end:
        return ~i
    if buf[i] == _ZERO:
        i += 1
    else:
        j = _digits_end(buf, i, end)
        if j == i:
            return ~i
        i = j
    if i < end and buf[i] == _DOT:
        j = _digits_end(buf, i + 1, end)
        if j == i + 1:
            return ~j
        i = j
    if i < end and (buf[i] == 0x65 or buf[i] == 0x45):
        i += 1
        if i < end and (buf[i] == _PLUS or buf[i] == _MINUS):
            i += 1
        j = _digits_end(buf, i, end)
        if j == i:
            return ~j
        i = j
    return i


@borrowing
def _digits_end(buf: Bytes, i: int, end: int) -> int:
    while i < end and buf[i] >= _ZERO and buf[i] <= _NINE:
        i += 1
    return i


@borrowing
def hex_digit(byte: np.uint8) -> int:
    """The value of a hexadecimal digit, or -1."""
    c = int(byte)
    if _ZERO <= c <= _NINE:
        return c - _ZERO
    if 0x61 <= c <= 0x66:
        return c - 0x57
    if 0x41 <= c <= 0x46:
        return c - 0x37
    return -1


@borrowing
def _special_end(buf: Bytes, i: int, end: int) -> int:
    """The index after the escape or the UTF-8 character at ``i``, or -1 (a bare control character, or a broken one)."""
    c = buf[i]
    if c == BACKSLASH:
        return _escape_end(buf, i, end)
    if c >= 0x80:
        return _character_end(buf, i, end)
    return -1


@borrowing
def _escape_end(buf: Bytes, i: int, end: int) -> int:
    """The index after the escape at ``i`` (a backslash), or -1."""
    if i + 1 >= end:
        return -1
    c = buf[i + 1]
    if c == 0x75:
        if i + 6 > end:
            return -1
        for k in range(i + 2, i + 6):
            if hex_digit(buf[k]) < 0:
                return -1
        return i + 6
    if c in (QUOTE, BACKSLASH, 0x2F, 0x62, 0x66, 0x6E, 0x72, 0x74):
        return i + 2
    return -1


@borrowing
def _character_end(buf: Bytes, i: int, end: int) -> int:
    """The index after the UTF-8 character at ``i`` (a byte over 0x7F), or -1: overlong forms and surrogates too."""
    c = buf[i]
    low = 0x80
    high = 0xBF
    if 0xC2 <= c <= 0xDF:
        more = 1
    elif 0xE0 <= c <= 0xEF:
        more = 2
        if c == 0xE0:
            low = 0xA0
        elif c == 0xED:
            high = 0x9F
    elif 0xF0 <= c <= 0xF4:
        more = 3
        if c == 0xF0:
            low = 0x90
        elif c == 0xF4:
            high = 0x8F
    else:
        return -1
    if i + more >= end:
        return -1
    if buf[i + 1] < low or buf[i + 1] > high:
        return -1
    for k in range(i + 2, i + more + 1):
        if buf[k] < 0x80 or buf[k] > 0xBF:
            return -1
    return i + more + 1
