"""Dissolves the nested objects of a batch of documents in one pass over their bytes.

Keys are joined as they are written, with their escapes, and values are copied unchanged. The pass also marks the
documents in which two names might be the same; only those are checked again, one by one (``clash``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.compiled import Bytes, compiled
from penstock.json.arrow_text import arrow_array, copy_bytes, quoted
from penstock.json.containers import value_end, value_start
from penstock.json.documents import documents
from penstock.json.find import Spans
from penstock.json.paths import Path
from penstock.json.tokens import (
    BACKSLASH,
    CLOSE_OBJECT,
    COLON,
    COMMA,
    OPEN_OBJECT,
    QUOTE,
    document_start,
    skip_whitespace,
    string_end,
)

Flags = npt.NDArray[np.bool_]

_NO_LIMIT = 2**62
_FEW = 24


@dataclass(frozen=True)
class Flattened:
    """The new documents. Where ``valid`` is false the old one was not a JSON object, and the new one is empty."""

    data: pa.BinaryArray
    valid: Flags
    broken_at: Spans
    doubtful: Flags
    """Documents in which two fields may have got the same name."""


def flattened(data: pa.BinaryArray, separator: str, depth: int | None) -> Flattened:
    """The documents with their nested objects dissolved, ``depth`` levels of them."""
    docs = documents(data)
    between = np.frombuffer(quoted(separator)[1:-1], np.uint8)
    limit = _NO_LIMIT if depth is None else depth
    out, offsets, valid, broken_at, doubtful = _flatten_all(docs.buffer, docs.offsets, docs.valid, between, limit)
    return Flattened(arrow_array(pa.binary(), out[: offsets[-1]], offsets), valid, broken_at, doubtful)


def clash(document: bytes, separator: str, depth: int | None) -> str | None:
    """The name that two different fields of a document would share, if there is one. Exact, and slow."""
    taken: dict[str, Path] = {}
    members = json.loads(document, object_pairs_hook=_Members, parse_int=str, parse_float=str)
    for path in _paths(members, (), depth):
        name = separator.join(path)
        if taken.setdefault(name, path) != path:
            return name
    return None


class _Members(list[tuple[str, object]]):
    """An object with every member, repeated keys too."""


def _paths(members: _Members, above: Path, depth: int | None) -> Iterator[Path]:
    for key, value in members:
        path = (*above, key)
        if isinstance(value, _Members) and value and (depth is None or len(above) < depth):
            yield from _paths(value, path, depth)
        else:
            yield path


@compiled
def _flatten_all(
    buf: Bytes, offsets: Spans, given: Flags, between: Bytes, limit: int
) -> tuple[Bytes, Spans, Flags, Spans, Flags]:
    count = len(given)
    valid = given.copy()
    doubtful = np.zeros(count, np.bool_)
    broken_at = np.full(count, -1, np.int64)
    out = np.empty(offsets[count] - offsets[0] + 64, np.uint8)
    out_offsets = np.zeros(count + 1, np.int64)
    # The keys of the open objects, each with the separator after it, and where each one's begin.
    prefix = np.empty(256, np.uint8)
    lengths = np.zeros(64, np.int64)
    hashes = np.empty(64, np.uint64)
    at = 0
    for record in range(count):
        out_offsets[record + 1] = at
        if not given[record]:
            continue
        first = offsets[record]
        end = offsets[record + 1]
        begin = at
        start = document_start(buf, first, end)
        i = ~start
        members = 0
        nested = False
        escaped = False
        if start < end and buf[start] == OPEN_OBJECT:
            i = start + 1
            depth = 0
            may_close = True
            while True:
                i = skip_whitespace(buf, i, end)
                if i >= end:
                    i = ~i
                    break
                if may_close and buf[i] == CLOSE_OBJECT:
                    i += 1
                    if depth == 0:
                        break
                    depth -= 1
                else:
                    key = i + 1
                    i = string_end(buf, i, end)
                    if i < 0:
                        break
                    key_stop = i - 1
                    i = value_start(buf, i, end)
                    if i < 0:
                        break
                    inside = lengths[depth]
                    if buf[i] == OPEN_OBJECT and depth < limit:
                        inner = skip_whitespace(buf, i + 1, end)
                        if inner < end and buf[inner] != CLOSE_OBJECT:
                            room = inside + (key_stop - key) + len(between)
                            if room > len(prefix):
                                longer = np.empty(2 * room, np.uint8)
                                longer[:inside] = prefix[:inside]
                                prefix = longer
                            if depth + 2 > len(lengths):
                                deeper = np.zeros(2 * len(lengths), np.int64)
                                deeper[: len(lengths)] = lengths
                                lengths = deeper
                            inside = copy_bytes(buf, key, key_stop, prefix, inside)
                            inside = copy_bytes(between, 0, len(between), prefix, inside)
                            depth += 1
                            lengths[depth] = inside
                            nested = True
                            may_close = False
                            i = inner
                            continue
                    value = i
                    i = value_end(buf, i, end)
                    if i < 0:
                        break
                    room = at + inside + (key_stop - key) + (i - value) + 8
                    if room > len(out):
                        grown = np.empty(2 * room, np.uint8)
                        grown[:at] = out[:at]
                        out = grown
                    out[at] = OPEN_OBJECT if members == 0 else COMMA
                    out[at + 1] = QUOTE
                    name = at + 2
                    at = copy_bytes(prefix, 0, inside, out, name)
                    at = copy_bytes(buf, key, key_stop, out, at)
                    mixed = np.uint64(14695981039346656037)
                    for k in range(name, at):
                        mixed = (mixed ^ np.uint64(out[k])) * np.uint64(1099511628211)
                        escaped = escaped or out[k] == BACKSLASH
                    out[at] = QUOTE
                    out[at + 1] = COLON
                    at = copy_bytes(buf, value, i, out, at + 2)
                    if members == len(hashes):
                        more = np.empty(2 * members, np.uint64)
                        more[:members] = hashes
                        hashes = more
                    hashes[members] = mixed
                    members += 1
                i = skip_whitespace(buf, i, end)
                if i < end and buf[i] == COMMA:
                    i += 1
                    may_close = False
                elif i < end and buf[i] == CLOSE_OBJECT:
                    may_close = True
                else:
                    i = ~i
                    break
        if i >= 0:
            i = skip_whitespace(buf, i, end)
            if i == end:
                if nested:
                    out[at] = CLOSE_OBJECT
                    at += 1
                    doubtful[record] = escaped or _any_twice(hashes, members)
                else:
                    at = begin
                    room = at + (end - first) + 8
                    if room > len(out):
                        grown = np.empty(2 * room, np.uint8)
                        grown[:at] = out[:at]
                        out = grown
                    at = copy_bytes(buf, first, end, out, at)
                out_offsets[record + 1] = at
                continue
            i = ~i
        valid[record] = False
        broken_at[record] = ~i
        at = begin
        out_offsets[record + 1] = at
    return out, out_offsets, valid, broken_at, doubtful


@compiled
def _any_twice(hashes: npt.NDArray[np.uint64], count: int) -> bool:
    if count > _FEW:
        ordered = np.sort(hashes[:count])
        for k in range(1, count):
            if ordered[k] == ordered[k - 1]:
                return True
        return False
    for k in range(count):
        for other in range(k):
            if hashes[k] == hashes[other]:
                return True
    return False
