"""Finds every leaf of every document of a batch in one pass: record, column, kind and byte span.

A leaf is a string, number or boolean, or an array taken whole. Objects are descended, nulls and empty objects leave
nothing, unless they are asked for. Leaves of the same path, in all documents, have the same column; the identity of
paths is exact. A key written with escapes is the same key as its plain spelling. If an object repeats a key, the last
value counts and the leaves of the others are in ``replaced``. A document that is not one well-formed JSON object gives
no leaves but a ``Problem``.

Why it is fast: documents of a batch resemble each other, so the scanner remembers which key followed which (``nodes``)
and compares the next bytes with that key before it looks anything up.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.compiled import Bytes, borrowing, compiled
from penstock.json.containers import container_end, value_start
from penstock.json.document_problems import Problem, problem
from penstock.json.documents import Documents, documents
from penstock.json.nodes import NODE_COUNTERS, NODES, Nodes, grown_nodes, intern, matches_key, new_nodes, paths_of
from penstock.json.paths import Path
from penstock.json.tokens import (
    ARRAY,
    CLOSE_OBJECT,
    COMMA,
    NULL,
    OBJECT,
    OPEN_ARRAY,
    OPEN_OBJECT,
    QUOTE,
    STRING,
    document_start,
    scalar_end,
    skip_whitespace,
    string_end,
    value_kind,
)

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Replaced:
    """Leaf ``k`` is the value ``buffer[start[k]:end[k]]`` in document ``record[k]``, of the path ``paths[path[k]]``."""

    record: Int32s
    path: Int32s
    kind: npt.NDArray[np.int8]
    start: Int64s
    end: Int64s
    paths: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.record)

    def between(self, first: int, last: int) -> Replaced:
        """The leaves of some documents, which are then counted from ``first``."""
        begin, end = np.searchsorted(self.record, [first, last]).tolist()
        return Replaced(
            self.record[begin:end] - np.int32(first),
            self.path[begin:end],
            self.kind[begin:end],
            self.start[begin:end],
            self.end[begin:end],
            self.paths,
        )


@dataclass(frozen=True)
class Leaves:
    """Leaf ``k`` is the value ``buffer[start[k]:end[k]]`` in document ``record[k]``, of the path ``paths[column[k]]``.

    Leaves are in the order of the documents' bytes; columns are in the order of their first leaf.
    """

    documents: Documents
    record: Int32s
    column: Int32s
    kind: npt.NDArray[np.int8]
    """``Kind``; never ABSENT, and NULL or OBJECT only if they are asked for."""
    start: Int64s
    end: Int64s
    paths: tuple[Path, ...]
    broken_at: Int64s
    """Per document: -1 if it was read, else the position of its first wrong byte (``NO_BYTES`` for a null)."""
    replaced: Replaced
    """Leaves that are left out because their key, or a key above them, is repeated in the same object."""

    @cached_property
    def problems(self) -> tuple[Problem, ...]:
        """Why documents could not be read. One Python step per bad document: they are few, and each gets a message."""
        return tuple(
            problem(self.documents, int(record), int(self.broken_at[record]))
            for record in np.flatnonzero(self.broken_at != -1)
        )


NO_BYTES = -2


def leaves(data: pa.Array | pa.ChunkedArray | Documents, *, keep_empty: bool = False) -> Leaves:
    """Scan a (large) binary or string array of JSON documents. ``keep_empty``: nulls and empty objects are leaves,
    too."""
    return _scanned(data, True, keep_empty)


def fields(data: pa.Array | pa.ChunkedArray | Documents) -> Leaves:
    """The same without descending: every member of the documents themselves, objects whole, nulls too."""
    return _scanned(data, False, True)


def _scanned(data: pa.Array | pa.ChunkedArray | Documents, deep: bool, keep_empty: bool) -> Leaves:
    docs = data if isinstance(data, Documents) else documents(data)
    found = _scan(docs.buffer, docs.offsets, docs.valid, _SEED, deep, keep_empty)
    record, node, kind, start, end, broken_at, nodes, counts = found
    if counts[_REPLACED]:
        alive = kind >= 0
        gone = ~alive
        path, of_path = _columns(node[gone], int(counts[NODES]))
        paths = paths_of(nodes, of_path.tolist())
        replaced = Replaced(record[gone], path, ~kind[gone], start[gone], end[gone], paths)
        record, node, kind, start, end = record[alive], node[alive], kind[alive], start[alive], end[alive]
    else:
        replaced = Replaced(record[:0], node[:0], kind[:0], start[:0], end[:0], ())
    column, of_column = _columns(node, int(counts[NODES]))
    return Leaves(docs, record, column, kind, start, end, paths_of(nodes, of_column.tolist()), broken_at, replaced)


class Output(NamedTuple):
    """Where leaves are written, and the objects that are open during the walk."""

    record: Int32s
    node: Int32s
    kind: npt.NDArray[np.int8]
    start: Int64s
    end: Int64s
    open_node: Int32s
    open_at: Int64s


# Places in the array of counters, after those of the nodes.
_LEAVES = NODE_COUNTERS
_REPLACED = NODE_COUNTERS + 1
_HAS_REPEATS = NODE_COUNTERS + 2
_COUNTERS = NODE_COUNTERS + 3

_NO_ROOM = np.iinfo(np.int64).min
_SEED = np.uint64(int.from_bytes(os.urandom(8), "little"))
"""A secret per process, so that nobody can choose keys that all fall into one slot."""


@compiled
def _scan(
    buf: Bytes, offsets: Int64s, valid: npt.NDArray[np.bool_], seed: np.uint64, deep: bool, keep_empty: bool
) -> tuple[Int32s, Int32s, npt.NDArray[np.int8], Int64s, Int64s, Int64s, Nodes, Int64s]:
    count = len(valid)
    counts = np.zeros(_COUNTERS, np.int64)
    counts[NODES] = 1
    nodes = new_nodes(64, 1024)
    output = _new_output(max(256, 32 * count), 64)
    broken_at = np.full(count, -1, np.int64)
    first = 0
    while first < count:
        first = _scan_documents(buf, offsets, valid, first, seed, deep, keep_empty, nodes, output, broken_at, counts)
        if first < count:
            # Go on with twice the room; the keys found so far stay.
            nodes = grown_nodes(nodes, counts)
            output = _grown_output(output, counts[_LEAVES])
    n = counts[_LEAVES]
    return (
        output.record[:n],
        output.node[:n],
        output.kind[:n],
        output.start[:n],
        output.end[:n],
        broken_at,
        nodes,
        counts,
    )


@borrowing
def _scan_documents(
    buf: Bytes,
    offsets: Int64s,
    valid: npt.NDArray[np.bool_],
    first: int,
    seed: np.uint64,
    deep: bool,
    keep_empty: bool,
    nodes: Nodes,
    output: Output,
    broken_at: Int64s,
    counts: Int64s,
) -> int:
    """Scan documents from ``first`` on; returns the one for which there is no room, or their number."""
    count = len(valid)
    for record in range(first, count):
        if not valid[record]:
            broken_at[record] = NO_BYTES
            continue
        end = offsets[record + 1]
        start = document_start(buf, offsets[record], end)
        if start >= end or buf[start] != OPEN_OBJECT:
            broken_at[record] = start
            continue
        before = counts[_LEAVES]
        counts[_HAS_REPEATS] = 0
        i = _walk(buf, start, end, record, seed, deep, keep_empty, nodes, output, counts)
        if i == _NO_ROOM:
            return record
        if i >= 0:
            i = skip_whitespace(buf, i, end)
            if i < end:
                i = ~i
        if i < 0:
            broken_at[record] = ~i
            counts[_LEAVES] = before
        elif counts[_HAS_REPEATS] != 0:
            _mark_replaced(before, nodes, output, counts)
    return count


@borrowing
def _walk(
    buf: Bytes,
    i: int,
    end: int,
    record: int,
    seed: np.uint64,
    deep: bool,
    keep_empty: bool,
    nodes: Nodes,
    output: Output,
    counts: Int64s,
) -> int:
    """Emit the leaves (or, if not ``deep``, the members) of the object at ``i``.

    Returns the index after it, ``~position`` if it is wrong, or ``_NO_ROOM``.
    """
    n = counts[_LEAVES]
    depth = 0
    parent = np.int32(0)
    previous = np.int32(-1)
    opened_at = i
    may_close = True
    i += 1
    while True:
        i = skip_whitespace(buf, i, end)
        if i >= end:
            return ~i
        if may_close and buf[i] == CLOSE_OBJECT:
            i += 1
            if depth == 0:
                counts[_LEAVES] = n
                return i
            depth -= 1
            previous = parent
            parent = output.open_node[depth]
            opened_at = output.open_at[depth]
        else:
            if buf[i] != QUOTE:
                return ~i
            member = i
            guess = nodes.first[parent] if previous < 0 else nodes.follower[previous]
            if guess >= 0 and matches_key(buf, i + 1, end, nodes, guess):
                node = guess
                i += nodes.key_stop[guess] - nodes.key_start[guess] + 2
            else:
                i = string_end(buf, i, end)
                if i < 0:
                    return i
                node = intern(buf, member + 1, i - 1, parent, seed, nodes, counts)
                if node < 0:
                    return _NO_ROOM
                if previous < 0:
                    nodes.first[parent] = node
                else:
                    nodes.follower[previous] = node
            i = value_start(buf, i, end)
            if i < 0:
                return i
            if nodes.member[node] >= opened_at:
                counts[_HAS_REPEATS] = 1
            nodes.member[node] = member
            c = buf[i]
            if deep and c == OPEN_OBJECT and not (keep_empty and _is_empty(buf, i, end)):
                if depth == len(output.open_node):
                    return _NO_ROOM
                output.open_node[depth] = parent
                output.open_at[depth] = opened_at
                depth += 1
                parent = node
                previous = np.int32(-1)
                opened_at = i
                i += 1
                may_close = True
                continue
            begin = i
            if c == QUOTE:
                i = string_end(buf, i, end)
                kind = STRING
            elif c in (OPEN_ARRAY, OPEN_OBJECT):
                i = container_end(buf, i, end)
                kind = ARRAY if c == OPEN_ARRAY else OBJECT
            else:
                i = scalar_end(buf, i, end)
                kind = value_kind(buf, begin, i)
            if i < 0:
                return i
            if kind != NULL or keep_empty:
                if n == len(output.record):
                    return _NO_ROOM
                output.record[n] = record
                output.node[n] = node
                output.kind[n] = kind
                output.start[n] = begin
                output.end[n] = i
                n += 1
            previous = node
        i = skip_whitespace(buf, i, end)
        if i < end and buf[i] == COMMA:
            i += 1
            may_close = False
        elif i < end and buf[i] == CLOSE_OBJECT:
            may_close = True
        else:
            return ~i


@borrowing
def _is_empty(buf: Bytes, i: int, end: int) -> bool:
    """Whether the object at ``i`` has no members."""
    i = skip_whitespace(buf, i + 1, end)
    return i < end and buf[i] == CLOSE_OBJECT


@borrowing
def _mark_replaced(before: int, nodes: Nodes, output: Output, counts: Int64s) -> None:
    """Complement the kind of those leaves from ``before`` on that are not in the last occurrence of each of their
    keys."""
    for leaf in range(before, counts[_LEAVES]):
        node = output.node[leaf]
        while node != 0:
            if output.start[leaf] < nodes.member[node]:
                output.kind[leaf] = ~output.kind[leaf]
                counts[_REPLACED] += 1
                break
            node = nodes.parent[node]


@compiled
def _new_output(room: int, depth: int) -> Output:
    return Output(
        np.empty(room, np.int32),
        np.empty(room, np.int32),
        np.empty(room, np.int8),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(depth, np.int32),
        np.empty(depth, np.int64),
    )


@compiled
def _grown_output(old: Output, used: int) -> Output:
    new = _new_output(2 * len(old.record), 2 * len(old.open_node))
    new.record[:used] = old.record[:used]
    new.node[:used] = old.node[:used]
    new.kind[:used] = old.kind[:used]
    new.start[:used] = old.start[:used]
    new.end[:used] = old.end[:used]
    return new


@compiled
def _columns(node: Int32s, nodes: int) -> tuple[Int32s, Int32s]:
    """Nodes that have leaves, numbered by their first leaf: each leaf's column, and each column's node."""
    column_of = np.full(nodes, -1, np.int32)
    of_column = np.empty(nodes, np.int32)
    column = np.empty(len(node), np.int32)
    count = 0
    for leaf in range(len(node)):
        k = node[leaf]
        if column_of[k] < 0:
            column_of[k] = count
            of_column[count] = k
            count += 1
        column[leaf] = column_of[k]
    return column, of_column[:count].copy()
