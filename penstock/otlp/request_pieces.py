"""OTLP requests taken apart and put together again by their bytes, so that fields which nobody here knows survive.

The requests of all three signals have the same shape: resources (field 1), each with scopes (field 2), each with
entries (field 2): spans, log records or metrics. What stands beside these, at each level, is its *head*: the resource
or the scope itself, its schema URL, and unknown fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

_VARINT, _FIXED64, _DELIMITED, _GROUP, _END_GROUP, _FIXED32 = range(6)
_RESOURCES, _SCOPES, _ENTRIES = 1, 2, 2
FRAME = 6
"""Bytes that stand before a field: its tag, and a length of up to five bytes."""


class Heads(NamedTuple):
    """What entries stand below."""

    request: bytes
    """Unknown fields of the request itself; nearly always empty."""
    resource: bytes
    scope: bytes


@dataclass(frozen=True, slots=True)
class Piece:
    """Entries of one resource and scope, next to each other in their request."""

    heads: Heads
    entries: Sequence[bytes]
    """Each is a whole field, with its tag and length."""

    def between(self, first: int, last: int) -> Piece:
        return self if last - first == len(self.entries) else replace(self, entries=self.entries[first:last])


def cut_request(body: bytes) -> Iterator[Piece]:
    """The pieces of a request, in its order. Raises ``ValueError`` for bytes that are no message. Resources and scopes
    without entries give none."""
    resources, request_head = _contents(body, _RESOURCES)
    for resource in resources:
        scopes, resource_head = _contents(resource, _SCOPES)
        for scope in scopes:
            entries, scope_head = _fields(scope, _ENTRIES)
            if entries:
                yield Piece(Heads(request_head, resource_head, scope_head), entries)


def join_request(pieces: Iterable[Piece]) -> bytes:
    """One request of all pieces, in their order. Neighbours with the same resource share it; if they also have the same
    scope, they share that too."""
    out: list[bytes] = []
    for request_head, same_request in groupby(pieces, lambda piece: piece.heads.request):
        out.append(request_head)
        for resource_head, same_resource in groupby(same_request, lambda piece: piece.heads.resource):
            inner = [resource_head]
            for heads, same_scope in groupby(same_resource, attrgetter("heads")):
                entries = [entry for piece in same_scope for entry in piece.entries]
                inner += _framed(_SCOPES, [heads.scope, *entries])
            out += _framed(_RESOURCES, inner)
    return b"".join(out)


def bytes_field(message: bytes, number: int) -> bytes:
    """The last value of a field of text, bytes or a message; empty if there is none. Raises ``ValueError``."""
    values, _ = _contents(message, number)
    return values[-1] if values else b""


def _framed(number: int, parts: Sequence[bytes]) -> list[bytes]:
    return [bytes((number << 3 | _DELIMITED,)), _varint(sum(map(len, parts))), *parts]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _contents(message: bytes, wanted: int) -> tuple[list[bytes], bytes]:
    """The contents of the delimited fields of a number, and all other fields together."""
    found, others = [], []
    for number, kind, begin, start, end in _walk(message):
        if number == wanted and kind == _DELIMITED:
            found.append(message[start:end])
        else:
            others.append(message[begin:end])
    return found, b"".join(others)


def _fields(message: bytes, wanted: int) -> tuple[list[bytes], bytes]:
    """The same, with the tag and the length of each."""
    found: list[bytes] = []
    others: list[bytes] = []
    for number, kind, begin, _, end in _walk(message):
        (found if number == wanted and kind == _DELIMITED else others).append(message[begin:end])
    return found, b"".join(others)


def _walk(message: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """Of each field its number and wire type, and where it, its content, and what follows begin."""
    at, size = 0, len(message)
    try:
        while at < size:
            begin = at
            tag = message[at]
            at += 1
            if tag >= 0x80:
                tag, at = _read_varint(message, begin)
            kind = tag & 7
            if kind == _DELIMITED:
                length = message[at]
                at += 1
                if length >= 0x80:
                    length, at = _read_varint(message, at - 1)
                end = at + length
            else:
                end = _skip(message, at, tag)
            if end > size or tag < 8:
                raise ValueError("the bytes are no protobuf message")
            yield tag >> 3, kind, begin, at, end
            at = end
    except IndexError:
        raise ValueError("the bytes are no protobuf message") from None


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := message[at]) >= 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if shift > 63:
            raise ValueError("the bytes are no protobuf message")
    return value | byte << shift, at + 1


def _skip(message: bytes, at: int, tag: int) -> int:
    """The place behind a content that is not delimited."""
    kind = tag & 7
    if kind == _VARINT:
        return _read_varint(message, at)[1]
    if kind == _FIXED64:
        return at + 8
    if kind == _FIXED32:
        return at + 4
    if kind != _GROUP:
        raise ValueError("the bytes are no protobuf message")
    # Groups nest; they end in a tag of their own number. Nobody sends any, but what is sent must survive.
    open_groups = [tag >> 3]
    while open_groups:
        tag, at = _read_varint(message, at)
        kind = tag & 7
        if kind == _GROUP:
            open_groups.append(tag >> 3)
        elif kind == _END_GROUP:
            if open_groups.pop() != tag >> 3:
                raise ValueError("the bytes are no protobuf message")
        elif kind == _DELIMITED:
            length, at = _read_varint(message, at)
            at += length
        else:
            at = _skip(message, at, tag)
    return at
