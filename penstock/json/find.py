"""Finds wanted paths in every document of a batch, as byte spans: one pass, no objects.

A path is a tuple of object keys (``("eventn_ctx", "user")``); ``()`` is the document itself. Paths go through objects
only, never into arrays. A key written with escapes equals its plain spelling. If an object repeats a key, the last one
counts. Every document is checked to its end, so spans come only from well-formed ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.compiled import Bytes, borrowing, compiled
from penstock.json.containers import value_end, value_start
from penstock.json.documents import Documents, documents
from penstock.json.paths import Path
from penstock.json.strings import has_escape, unescape
from penstock.json.tokens import (
    CLOSE_OBJECT,
    COMMA,
    OBJECT,
    OPEN_OBJECT,
    document_start,
    skip_whitespace,
    string_end,
    value_kind,
)

Spans = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Found:
    """Per record and path, positions in ``buffer`` (absolute, end exclusive). Where ``kind`` is ABSENT they are -1."""

    buffer: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    """Record ``i`` is ``buffer[offsets[i]:offsets[i + 1]]``."""
    valid: npt.NDArray[np.bool_]
    """Whether the record is one well-formed JSON object. If not, nothing is found in it."""
    broken_at: npt.NDArray[np.int64]
    """For a record that is not valid, the position of the first byte that is wrong; for others, and for nulls, -1."""
    kind: npt.NDArray[np.int8]
    """``Kind`` of the value."""
    value_start: Spans
    value_end: Spans
    member_start: Spans
    """The opening quote of the value's key (for the path ``()``, the value itself)."""
    member_end: Spans
    """The end of the value: separators around a member belong to no member."""

    def paths_from(self, first: int) -> Found:
        """The same, for the paths from the ``first`` on."""
        return replace(
            self,
            kind=self.kind[:, first:],
            value_start=self.value_start[:, first:],
            value_end=self.value_end[:, first:],
            member_start=self.member_start[:, first:],
            member_end=self.member_end[:, first:],
        )


def find(data: pa.Array | pa.ChunkedArray | Documents, paths: Sequence[Path]) -> Found:
    """Look for ``paths`` in every document of a (large) binary or string array."""
    docs = data if isinstance(data, Documents) else documents(data)
    trie, columns = build_trie(paths)
    shape = (len(docs), len(set(paths)))
    kind = np.zeros(shape, np.int8)
    spans = np.full((4, *shape), -1, np.int64)
    broken_at = np.full(len(docs), -1, np.int64)
    valid = docs.valid.copy()
    _find_all(docs.buffer, docs.offsets, valid, broken_at, trie, kind, spans)
    if len(columns) != shape[1]:
        kind, spans = kind[:, columns], spans[:, :, columns]
    return Found(docs.buffer, docs.offsets, valid, broken_at, kind, spans[0], spans[1], spans[2], spans[3])


class _Node:
    """A key on the way to wanted paths."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.column = -1
        self.children: dict[str, _Node] = {}


class Trie(NamedTuple):
    """Paths as a tree in arrays.

    Nodes are numbered so that a node's descendants follow it without a gap: node ``n``'s are ``n + 1 .. after[n] - 1``,
    its first child is ``n + 1``, and the next sibling of ``c`` is ``after[c]``.
    """

    keys: Bytes
    key_starts: Spans
    """Where each node's key starts in ``keys``, and one more for the end."""
    after: Spans
    column: Spans
    """The column of each node; -1: none."""
    max_depth: int


def build_trie(paths: Sequence[Path]) -> tuple[Trie, list[int]]:
    """The paths as a tree, and for each path its column."""
    root = _Node(b"")
    seen: dict[Path, int] = {}
    for path in paths:
        node = root
        for key in path:
            node = node.children.setdefault(key, _Node(key.encode("utf-8", "surrogatepass")))
        node.column = seen.setdefault(path, len(seen))
    keys: list[bytes] = []
    after: list[int] = []
    column: list[int] = []

    def number(node: _Node) -> None:
        place = len(keys)
        keys.append(node.key)
        column.append(node.column)
        after.append(0)
        for child in node.children.values():
            number(child)
        after[place] = len(keys)

    number(root)
    trie = Trie(
        np.frombuffer(b"".join(keys) or b"\0", np.uint8),
        np.cumsum([0, *map(len, keys)], dtype=np.int64),
        np.array(after, np.int64),
        np.array(column, np.int64),
        max(map(len, paths), default=0),
    )
    return trie, [seen[path] for path in paths]


@compiled
def _find_all(
    buf: Bytes,
    offsets: Spans,
    valid: npt.NDArray[np.bool_],
    broken_at: Spans,
    trie: Trie,
    kind: npt.NDArray[np.int8],
    spans: npt.NDArray[np.int64],
) -> None:
    keys, key_starts, after, column, max_depth = trie
    parents = np.zeros(max_depth + 1, np.int64)
    scratch = np.empty(256, np.uint8)
    for record in range(len(valid)):
        if not valid[record]:
            continue
        end = offsets[record + 1]
        start = document_start(buf, offsets[record], end)
        i = ~start
        if start < end and buf[start] == OPEN_OBJECT:
            root = column[0]
            if root >= 0:
                kind[record, root] = OBJECT
                spans[0, record, root] = start
                spans[2, record, root] = start
            i = start + 1
            # The walk over one document. `node` is the wanted key whose object we are in.
            node = 0
            depth = 0
            may_close = True
            while True:
                i = skip_whitespace(buf, i, end)
                if i >= end:
                    i = ~i
                    break
                if may_close and buf[i] == CLOSE_OBJECT:
                    i += 1
                    if column[node] >= 0:
                        spans[1, record, column[node]] = i
                        spans[3, record, column[node]] = i
                    if depth == 0:
                        break
                    depth -= 1
                    node = parents[depth]
                else:
                    member = i
                    i = string_end(buf, i, end)
                    if i < 0:
                        break
                    key_stop = i - 1
                    i = value_start(buf, i, end)
                    if i < 0:
                        break
                    child = -1
                    if after[node] > node + 1:
                        if key_stop - member > len(scratch):
                            scratch = np.empty(2 * (key_stop - member), np.uint8)
                        child = child_of(buf, member + 1, key_stop, node, keys, key_starts, after, scratch)
                    place = -1
                    if child >= 0:
                        for inner in range(child, after[child]):
                            if column[inner] >= 0:
                                _forget(kind, spans, record, column[inner])
                        place = column[child]
                        if place >= 0:
                            spans[0, record, place] = i
                            spans[2, record, place] = member
                        if buf[i] == OPEN_OBJECT and after[child] > child + 1:
                            if place >= 0:
                                kind[record, place] = OBJECT
                            parents[depth] = node
                            depth += 1
                            node = child
                            i += 1
                            may_close = True
                            continue
                    begin = i
                    i = value_end(buf, i, end)
                    if i < 0:
                        break
                    if place >= 0:
                        kind[record, place] = value_kind(buf, begin, i)
                        spans[1, record, place] = i
                        spans[3, record, place] = i
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
                continue
            i = ~i
        valid[record] = False
        broken_at[record] = ~i
        for place in range(kind.shape[1]):
            _forget(kind, spans, record, place)


@borrowing
def _forget(kind: npt.NDArray[np.int8], spans: npt.NDArray[np.int64], record: int, place: int) -> None:
    kind[record, place] = 0
    for which in range(4):
        spans[which, record, place] = -1


@borrowing
def child_of(
    buf: Bytes, start: int, stop: int, node: int, keys: Bytes, key_starts: Spans, after: Spans, scratch: Bytes
) -> int:
    """The child of ``node`` whose key is the string at ``[start, stop)`` (without quotes), or -1."""
    if has_escape(buf, start, stop):
        length = unescape(buf, start, stop, scratch, 0)
        return _plain_child(scratch, 0, length, node, keys, key_starts, after)
    return _plain_child(buf, start, stop, node, keys, key_starts, after)


@borrowing
def _plain_child(buf: Bytes, start: int, stop: int, node: int, keys: Bytes, key_starts: Spans, after: Spans) -> int:
    child = node + 1
    while child < after[node]:
        first = key_starts[child]
        if key_starts[child + 1] - first == stop - start:
            same = True
            for k in range(stop - start):
                if keys[first + k] != buf[start + k]:
                    same = False
                    break
            if same:
                return child
        child = after[child]
    return -1
