"""Protobuf's wire format, compiled: fields one after the other, and nothing that is read past the end.

A place below zero means that the bytes are no message. Fields whose wire type is not the expected one count as unknown
ones, as everywhere in protobuf.
"""

from __future__ import annotations

import numpy as np

from penstock.compiled import Bytes, borrowing
from penstock.json.words import load_word

VARINT, FIXED64, DELIMITED, GROUP, END_GROUP, FIXED32 = 0, 1, 2, 3, 4, 5
BROKEN = -1
MOST_GROUPS = 100
"""How deep groups may be nested; nobody sends any."""


@borrowing
def byte_at(buf: Bytes, at: int) -> int:
    """A byte that must be there. Places are unsigned here: for others, a negative one would be looked for first."""
    return np.int64(buf[np.uint64(at)])  # type: ignore[return-value]


@borrowing
def read_varint(buf: Bytes, at: int, end: int) -> tuple[np.uint64, int]:
    """The number that begins at ``at``, and the place behind it."""
    value = np.uint64(0)
    shift = np.uint64(0)
    for _ in range(10):
        if at >= end:
            return value, BROKEN
        byte = np.uint64(byte_at(buf, at))
        at += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return value, at
        shift += np.uint64(7)
    return value, BROKEN


@borrowing
def read_whole_tag(buf: Bytes, at: int, end: int) -> tuple[int, int]:
    """The tag that begins at ``at`` (number of the field << 3 | wire type), and the place of its content."""
    if at < end and byte_at(buf, at) < 0x80:
        # As nearly all are: every field up to the fifteenth.
        tag = byte_at(buf, at)
        return tag, (at + 1 if tag > 7 else BROKEN)
    return _read_long_tag(buf, at, end)


@borrowing
def read_tag(buf: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """The number of the field that begins at ``at``, its wire type, and the place of its content."""
    tag, at = read_whole_tag(buf, at, end)
    return tag >> 3, tag & 7, at


@borrowing
def read_length(buf: Bytes, at: int, end: int) -> tuple[int, int]:
    """The first byte of a delimited content, and the place behind it."""
    if at < end and byte_at(buf, at) < 0x80:
        behind = at + 1 + byte_at(buf, at)
        return at + 1, (behind if behind <= end else BROKEN)
    if at + 1 < end and byte_at(buf, at + 1) < 0x80:
        behind = at + 2 + (byte_at(buf, at + 1) << 7 | byte_at(buf, at) & 0x7F)
        return at + 2, (behind if behind <= end else BROKEN)
    return _read_long_length(buf, at, end)


@borrowing
def skip_content(buf: Bytes, at: int, end: int, kind: int) -> int:
    """The place behind a content of this wire type."""
    if kind == DELIMITED:
        return read_length(buf, at, end)[1]
    if kind == VARINT:
        return at + 1 if at < end and byte_at(buf, at) < 0x80 else read_varint(buf, at, end)[1]
    if kind == FIXED64:
        return at + 8 if at + 8 <= end else BROKEN
    if kind == FIXED32:
        return at + 4 if at + 4 <= end else BROKEN
    return _skip_group(buf, at, end) if kind == GROUP else BROKEN


@borrowing
def _read_long_tag(buf: Bytes, at: int, end: int) -> tuple[int, int]:
    tag, at = read_varint(buf, at, end)
    if at < 0 or tag < np.uint64(8) or tag >> np.uint64(32) != 0:
        return 0, BROKEN
    return np.int64(tag), at  # type: ignore[return-value]


@borrowing
def _read_long_length(buf: Bytes, at: int, end: int) -> tuple[int, int]:
    length, at = read_varint(buf, at, end)
    if at < 0 or length > np.uint64(end - at):
        return 0, BROKEN
    return at, at + np.int64(length)  # type: ignore[return-value]


@borrowing
def _skip_group(buf: Bytes, at: int, end: int) -> int:
    depth = 1
    while depth > 0:
        _, kind, at = read_tag(buf, at, end)
        if at < 0:
            return BROKEN
        if kind == GROUP:
            depth += 1
            if depth > MOST_GROUPS:
                return BROKEN
        elif kind == END_GROUP:
            depth -= 1
        elif kind == DELIMITED:
            at = read_length(buf, at, end)[1]
        elif kind == VARINT:
            at = read_varint(buf, at, end)[1]
        elif kind == FIXED64 or kind == FIXED32:
            at += 8 if kind == FIXED64 else 4
        else:
            return BROKEN
        if at < 0 or at > end:
            return BROKEN
    return at


@borrowing
def read_fixed64(buf: Bytes, at: int) -> np.uint64:
    """A little-endian number of eight bytes, which must be there."""
    return load_word(buf, at)


@borrowing
def read_fixed32(buf: Bytes, at: int) -> np.uint32:
    """One of four bytes."""
    value = np.uint32(0)
    for place in range(3, -1, -1):
        value = value << np.uint32(8) | np.uint32(buf[at + place])
    return value


@borrowing
def varint_size(value: int) -> int:
    size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


@borrowing
def write_varint(out: Bytes, at: int, value: int) -> int:
    """Returns the place behind it."""
    while value >= 0x80:
        out[at] = value & 0x7F | 0x80
        value >>= 7
        at += 1
    out[at] = value
    return at + 1
