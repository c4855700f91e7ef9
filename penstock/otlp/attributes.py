"""Finds attributes by their keys in spans, resources and events, compiled.

Attributes are a repeated field of key and value. Of several with one key, which OTLP forbids and nobody enforces, the
first counts, as in the OpenTelemetry Collector: here, and in the rows that spans and logs become.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.compiled import Bytes, borrowing
from penstock.json.arrow_text import gathered
from penstock.json.words import load_word
from penstock.otlp.span_table import ValueKind, Values
from penstock.otlp.wire import (
    BROKEN,
    DELIMITED,
    FIXED64,
    VARINT,
    byte_at,
    read_fixed64,
    read_length,
    read_tag,
    read_varint,
    read_whole_tag,
    skip_content,
)

Places = npt.NDArray[np.int64]

SPAN_ATTRIBUTES, RESOURCE_ATTRIBUTES, EVENT_ATTRIBUTES, LOG_ATTRIBUTES = 9, 1, 3, 6
"""The field of the attributes in each message."""
_KEY, _VALUE = 1 << 3 | DELIMITED, 2 << 3 | DELIMITED
"""The tags of the two fields of an attribute."""
_SHORT_BYTES = np.uint64(0x80FF80FF)
"""Of the first four bytes of an attribute: its tag, that its length is one byte, the tag of its key, and that this
one's length is one byte, too."""
_STRING, _BOOL, _INT, _DOUBLE, _ARRAY, _MAP, _BYTES, _EMPTY = (int(kind) for kind in list(ValueKind)[1:])


class Keys(NamedTuple):
    """The keys that are looked for, one after the other in one buffer."""

    text: Bytes
    offsets: Places
    sizes: np.uint64
    """A bit for each size that one of them has; the highest for all from 63 bytes on."""


class Found(NamedTuple):
    """By key, then by message: kind and value of each attribute. Texts are places in the buffer."""

    kind: npt.NDArray[np.uint8]
    number: npt.NDArray[np.int64]
    """Of an integer or a truth value; of a double its bits; 0 for all others."""
    begin: Places
    end: Places


def find_attributes(buf: Bytes, begin: Places, end: Places, field: int, keys: Sequence[str]) -> list[Values]:
    """The values of these keys in the messages at ``[begin, end)``, whose attributes are in ``field``: for each key one
    value per message. The messages must be well-formed at their top."""
    found = nothing_found(len(keys), len(begin))
    _find(buf, begin, end, field, wanted_keys(keys), found)
    return found_values(buf, found)


def wanted_keys(keys: Sequence[str]) -> Keys:
    encoded = [key.encode() for key in keys]
    sizes = [len(key) for key in encoded]
    text = np.frombuffer(b"".join(encoded), np.uint8)
    return Keys(text, np.cumsum([0, *sizes]), np.uint64(sum(1 << size for size in {min(n, 63) for n in sizes})))


def nothing_found(keys: int, messages: int) -> Found:
    """Where ``take_attribute`` writes what it finds."""
    shape = (keys, messages)
    return Found(np.zeros(shape, np.uint8), *(np.zeros(shape, np.int64) for _ in range(3)))


def found_values(buf: Bytes, found: Found) -> list[Values]:
    """What was found of each key."""
    return [_values(buf, Found(*(column[row] for column in found))) for row in range(len(found.kind))]


def take_texts(buf: Bytes, begin: Places, end: Places, there: npt.NDArray[np.bool_] | None = None) -> pa.StringArray:
    """The texts at these places; null for those that are not there. Bytes that are no text are replaced."""
    raw = gathered(buf, begin, end - begin, there)
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        # Not from a source that checks what it takes.
        decoded = [None if each is None else each.decode(errors="replace") for each in raw.to_pylist()]
        return pa.array(decoded, pa.string())


def _values(buf: Bytes, found: Found) -> Values:
    is_text, is_double = found.kind == _STRING, found.kind == _DOUBLE
    doubles = np.where(is_double, found.number, 0).view(np.float64)
    numbers = np.where(is_double, 0, found.number)
    if not is_text.any():
        return Values(found.kind, numbers, doubles, pa.nulls(len(numbers), pa.string()))
    begin, end = (np.where(is_text, places, 0) for places in (found.begin, found.end))
    return Values(found.kind, numbers, doubles, take_texts(buf, begin, end, is_text))


@borrowing
def _find(buf: Bytes, begin: Places, end: Places, wanted_field: int, keys: Keys, found: Found) -> None:
    wanted_tag = wanted_field << 3 | DELIMITED
    for row in range(len(begin)):
        at, stop = begin[row], end[row]
        while at < stop:
            tag, at = read_whole_tag(buf, at, stop)
            if at < 0:
                break
            if tag == wanted_tag:
                first, at = read_length(buf, at, stop)
                if at < 0:
                    break
                take_attribute(buf, first, at, keys, found, row)
            else:
                at = skip_content(buf, at, stop, tag & 7)
                if at < 0:
                    break


@borrowing
def take_short_attribute(buf: Bytes, at: int, end: int, tag: int, keys: Keys, found: Found, row: int) -> int:
    """Take an attribute, from its ``tag`` on, as ``take_attribute`` does, and return the place behind it. ``BROKEN``,
    and nothing taken, if it is none, or not as nearly all are: short, and a short key before a value that is all the
    rest. There are eight bytes."""
    word = load_word(buf, at)
    if word & _SHORT_BYTES != np.uint64(tag | _KEY << 16):
        return BROKEN
    size = int(np.int64(word >> np.uint64(24) & np.uint64(0x7F)))
    behind = at + 2 + int(np.int64(word >> np.uint64(8) & np.uint64(0x7F)))
    value = at + 4 + size
    if behind > end or value + 2 > behind or byte_at(buf, value) != _VALUE:
        return BROKEN
    if value + 2 + byte_at(buf, value + 1) != behind:
        return BROKEN
    if keys.sizes >> np.uint64(min(size, 63)) & np.uint64(1) != np.uint64(0):
        _take_if_wanted(buf, at + 4, value, value + 2, behind, keys, found, row)
    return behind


@borrowing
def take_attribute(buf: Bytes, at: int, end: int, keys: Keys, found: Found, row: int) -> None:
    """Take the value of an attribute if its key is wanted and has no value yet."""
    if 4 <= end - at < 0x80 and byte_at(buf, at) == _KEY:
        # As nearly all are: a short key, and behind it a value that is all the rest.
        size = byte_at(buf, at + 1)
        value = at + 2 + size
        if value + 2 <= end and byte_at(buf, value) == _VALUE and value + 2 + byte_at(buf, value + 1) == end:
            if keys.sizes >> np.uint64(min(size, 63)) & np.uint64(1) != np.uint64(0):
                _take_if_wanted(buf, at + 2, value, value + 2, end, keys, found, row)
            return
    _take_from_any(buf, at, end, keys, found, row)


@borrowing
def _take_from_any(buf: Bytes, at: int, end: int, keys: Keys, found: Found, row: int) -> None:
    """The same, however it is written."""
    key, key_end, value, value_end = at, at, -1, -1
    while at < end:
        tag, at = read_whole_tag(buf, at, end)
        if at < 0:
            return
        if tag == _KEY:
            key, at = read_length(buf, at, end)
            key_end = at
        elif tag == _VALUE:
            value, at = read_length(buf, at, end)
            value_end = at
        else:
            at = skip_content(buf, at, end, tag & 7)
        if at < 0:
            return
    _take_if_wanted(buf, key, key_end, value, value_end, keys, found, row)


@borrowing
def _take_if_wanted(
    buf: Bytes, key: int, key_end: int, value: int, value_end: int, keys: Keys, found: Found, row: int
) -> None:
    for number in range(len(keys.offsets) - 1):
        if found.kind[number, row] == 0 and _is_key(buf, key, key_end, keys, number):
            _take_value(buf, value, value_end, found, number, row)
            return


@borrowing
def _is_key(buf: Bytes, key: int, key_end: int, keys: Keys, number: int) -> bool:
    first, size = keys.offsets[number], keys.offsets[number + 1] - keys.offsets[number]
    if key_end - key != size:
        return False
    place = 0
    while place + 8 <= size:
        if load_word(buf, key + place) != load_word(keys.text, first + place):
            return False
        place += 8
    while place < size:
        if byte_at(buf, key + place) != byte_at(keys.text, first + place):
            return False
        place += 1
    return True


@borrowing
def _take_value(buf: Bytes, at: int, end: int, found: Found, number: int, row: int) -> None:
    """Of several values the last counts, as in every choice of protobuf."""
    found.kind[number, row] = _EMPTY
    while 0 <= at < end:
        field, kind, at = read_tag(buf, at, end)
        if at < 0:
            return
        first = at
        at = skip_content(buf, at, end, kind)
        if at < 0:
            return
        if field == 2 and kind == VARINT:
            found.kind[number, row] = _BOOL
            found.number[number, row] = read_varint(buf, first, end)[0] != 0
        elif field == 3 and kind == VARINT:
            found.kind[number, row] = _INT
            found.number[number, row] = np.int64(read_varint(buf, first, end)[0])
        elif field == 4 and kind == FIXED64:
            found.kind[number, row] = _DOUBLE
            found.number[number, row] = np.int64(read_fixed64(buf, first))
        elif kind == DELIMITED and (field == 1 or 5 <= field <= 7):
            found.kind[number, row] = (
                _STRING if field == 1 else _ARRAY if field == 5 else _MAP if field == 6 else _BYTES
            )
            found.number[number, row] = 0
            found.begin[number, row] = read_length(buf, first, end)[0]
            found.end[number, row] = at
