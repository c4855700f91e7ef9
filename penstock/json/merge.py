"""Merges one JSON object into another, member by member, with every value as it is written.

This works on one pair of objects at a time, for the rare rows where an object is moved onto another one: only the bytes
of both show which members collide.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from penstock.compiled import Bytes, compiled
from penstock.json.containers import key_end, value_end
from penstock.json.find import Spans
from penstock.json.tokens import CLOSE_OBJECT, COMMA, OPEN_OBJECT, skip_whitespace


def merge_objects(target: bytes, source: bytes) -> bytes:
    """``target`` with the members of ``source``: new ones at its end, known ones replaced; nested objects are merged.

    Both must be well-formed objects.
    """
    members = members_of(target)
    for key, (name, value) in members_of(source).items():
        old = members.get(key)
        if old is not None and old[1][0] == value[0] == OPEN_OBJECT:
            value = merge_objects(old[1], value)
        members[key] = (old[0] if old is not None else name, value)
    return b"{" + b",".join(name + b":" + value for name, value in members.values()) + b"}"


def members_of(text: bytes) -> dict[str, tuple[bytes, bytes]]:
    """The members of a well-formed object: key to its spelling and its value, in document order; the last value of a
    repeated key."""
    return {json.loads(name): (name, value) for name, value in all_members_of(text)}


def all_members_of(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Spelling of the key and value of each member of a well-formed object, in document order, repeated ones too."""
    for key_start, key_stop, start, end in _member_spans(np.frombuffer(text, np.uint8)).tolist():
        yield text[key_start:key_stop].rstrip(b": \t\r\n"), text[start:end]


@compiled
def _member_spans(buf: Bytes) -> Spans:
    end = len(buf)
    spans = np.empty((8, 4), np.int64)
    count = 0
    i = skip_whitespace(buf, 1, end)
    while buf[i] != CLOSE_OBJECT:
        if count == len(spans):
            grown = np.empty((2 * count, 4), np.int64)
            grown[:count] = spans
            spans = grown
        spans[count, 0] = i
        i = key_end(buf, i, end)
        spans[count, 1] = i
        spans[count, 2] = i
        i = value_end(buf, i, end)
        spans[count, 3] = i
        count += 1
        i = skip_whitespace(buf, i, end)
        if buf[i] == COMMA:
            i = skip_whitespace(buf, i + 1, end)
    return spans[:count]
