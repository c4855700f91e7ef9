"""Which documents are plain: written as they are into a request, they mean what the mapper of single events makes of
them. And the times that they state.

Not plain are halves of surrogate pairs, which are replaced, names that an object in an array has twice, and values that
are refused: numbers beyond a double, and arrays in very many others. What is doubtful counts as not plain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.compiled import Bytes, borrowing
from penstock.flatten.values.timestamps import NO_TIMESTAMP, read_timestamp
from penstock.json.leaves import Leaves
from penstock.json.strings import code_unit
from penstock.json.tokens import (
    ARRAY,
    BACKSLASH,
    CLOSE_ARRAY,
    CLOSE_OBJECT,
    COLON,
    FLOAT,
    INT,
    OPEN_ARRAY,
    OPEN_OBJECT,
    QUOTE,
    STRING,
    number_end,
    skip_whitespace,
    string_end,
)
from penstock.json.words import BACKSLASHES, HIGH_BITS, LOW_BITS, first_marked_byte, load_word

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Kinds = npt.NDArray[np.int8]
Flags = npt.NDArray[np.bool_]

MOST_DEPTH = 100
"""Of arrays and objects in each other."""
_MOST_NAMES = 256
"""Of the objects that are open in an array."""
_MOST_DIGITS = 100
_MOST_EXPONENT_DIGITS = 2
"""With so many a number is within a double's range for certain."""
_MOST_MICROS = 9_000_000_000_000_000
"""Times this far from 1970 have nanoseconds that 64 bits hold."""
_LONGEST_TIME = 35
_FRACTION_AT = 19
_ZERO, _NINE, _DOT, _MINUS = 0x30, 0x39, 0x2E, 0x2D


def keep_plain(found: Leaves, plain: Flags) -> None:
    """Take the flag from each document that is not plain."""
    documents, names = found.documents, Names(*np.zeros((3, _MOST_NAMES), np.int64))
    _keep_plain(documents.buffer, documents.offsets, found.record, found.kind, found.start, found.end, names, plain)


class Names(NamedTuple):
    """The names of the objects that are open, and where those of each depth begin."""

    start: Int64s
    end: Int64s
    first: Int64s


@borrowing
def _keep_plain(
    buf: Bytes, offsets: Int64s, record: Int32s, kind: Kinds, start: Int64s, end: Int64s, names: Names, plain: Flags
) -> None:
    for row in range(len(plain)):
        if plain[row] and _has_half_pair(buf, offsets[row], offsets[row + 1]):
            plain[row] = False
    for leaf in range(len(record)):
        what = kind[leaf]
        if what == FLOAT or what == INT:
            if not _is_plain_number(buf, start[leaf], end[leaf]):
                plain[record[leaf]] = False
        elif what == ARRAY and not _is_plain_array(buf, start[leaf], end[leaf], names):
            plain[record[leaf]] = False


@borrowing
def _has_half_pair(buf: Bytes, i: int, end: int) -> bool:
    """Whether there may be an escape of half a surrogate pair without the other half."""
    while i < end:
        if i + 8 <= end:
            found = load_word(buf, i) ^ BACKSLASHES
            marks = (found - LOW_BITS) & ~found & HIGH_BITS
            if marks == 0:
                i += 8
                continue
            i += first_marked_byte(marks)
        if buf[i] != BACKSLASH:
            i += 1
            continue
        if i + 6 > end or buf[i + 1] != 0x75:
            i += 2
            continue
        code = code_unit(buf, i)
        i += 6
        if 0xD800 <= code <= 0xDFFF:
            if code > 0xDBFF or i + 6 > end or buf[i] != BACKSLASH or buf[i + 1] != 0x75:
                return True
            low = code_unit(buf, i)
            if low < 0xDC00 or low > 0xDFFF:
                return True
            i += 6
    return False


@borrowing
def _is_plain_number(buf: Bytes, start: int, end: int) -> bool:
    if end - start > _MOST_DIGITS:
        return False
    for i in range(start, end):
        if buf[i] == 0x65 or buf[i] == 0x45:
            # With its sign, or without.
            return end - i - 1 <= _MOST_EXPONENT_DIGITS
    return True


@borrowing
def _is_plain_array(buf: Bytes, i: int, end: int, names: Names) -> bool:
    """Whether all values in a well-formed array are plain, and none of its objects has a name twice, or very many."""
    depth = 0
    known = 0
    names.first[0] = 0
    while i < end:
        c = buf[i]
        if c == QUOTE:
            start = i
            i = string_end(buf, i, end)
            if buf[skip_whitespace(buf, i, end)] == COLON:
                if known == _MOST_NAMES or _is_known(buf, start, i, names, names.first[depth], known):
                    return False
                names.start[known] = start
                names.end[known] = i
                known += 1
            continue
        if c == OPEN_ARRAY or c == OPEN_OBJECT:
            depth += 1
            if depth > MOST_DEPTH:
                return False
            names.first[depth] = known
        elif c == CLOSE_ARRAY or c == CLOSE_OBJECT:
            known = names.first[depth]
            depth -= 1
        elif c == _MINUS or _ZERO <= c <= _NINE:
            start = i
            i = number_end(buf, i, end)
            if not _is_plain_number(buf, start, i):
                return False
            continue
        i += 1
    return True


@borrowing
def _is_known(buf: Bytes, start: int, end: int, names: Names, first: int, known: int) -> bool:
    """Whether a name may be one of those that its object has already."""
    for k in range(start, end):
        if buf[k] == BACKSLASH:
            return True
    for name in range(first, known):
        if names.end[name] - names.start[name] == end - start:
            k = 0
            while k < end - start and buf[start + k] == buf[names.start[name] + k]:
                k += 1
            if k == end - start:
                return True
    return False


def read_times(buf: Bytes, kind: Kinds, start: Int64s, end: Int64s, nanos: Int64s, plain: Flags) -> Flags:
    """Fill in the nanoseconds of values that are times, and say which are. A row whose value is a text and may be
    written in some other way loses its flag."""
    is_time = np.zeros(len(kind), np.bool_)
    _read_times(buf, kind, start, end, nanos, plain, is_time, np.zeros(_LONGEST_TIME, np.uint8))
    return is_time


@borrowing
def _read_times(
    buf: Bytes,
    kind: Kinds,
    start: Int64s,
    end: Int64s,
    nanos: Int64s,
    plain: Flags,
    is_time: Flags,
    scratch: npt.NDArray[np.uint8],
) -> None:
    for row in range(len(kind)):
        if kind[row] != STRING or not plain[row]:
            continue
        value = _nanoseconds(buf, start[row] + 1, end[row] - 1, scratch)
        if value == NO_TIMESTAMP:
            plain[row] = False
        else:
            nanos[row] = value
            is_time[row] = True


@borrowing
def _nanoseconds(buf: Bytes, start: int, end: int, scratch: npt.NDArray[np.uint8]) -> int:
    if end - start > _LONGEST_TIME or end - start < _FRACTION_AT:
        return NO_TIMESTAMP
    fraction = 0
    length = 0
    i = start
    while i < end:
        if i - start == _FRACTION_AT and buf[i] == _DOT:
            i += 1
            digits = 0
            while i < end and _ZERO <= buf[i] <= _NINE:
                if digits < 9:
                    fraction = fraction * 10 + int(buf[i]) - _ZERO
                digits += 1
                i += 1
            if digits == 0:
                return NO_TIMESTAMP
            for _ in range(digits, 9):
                fraction *= 10
            continue
        scratch[length] = buf[i]
        length += 1
        i += 1
    micros = read_timestamp(scratch, 0, length, False)
    # What is before 1970 has no place in an event, and what is late enough may have none.
    if micros < 0 or micros > _MOST_MICROS:
        return NO_TIMESTAMP
    return micros * 1_000 + fraction
