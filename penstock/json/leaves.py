"""Every leaf of every document of a batch, found in one pass: record, column, kind and byte span.

A leaf is a string, number or boolean, or an array taken whole. Objects are descended, nulls and empty objects leave
nothing. Leaves of the same path, in all documents, have the same column; the identity of paths is exact. A key written
with escapes is the same key as its plain spelling. If an object repeats a key, the last value counts and the leaves of
the others are counted in ``replaced``. A document that is not one well-formed JSON object gives no leaves but a
``Problem``.

How it is fast: documents of a batch resemble each other, so the scanner remembers which key followed which and compares
the bytes at hand with that key before it looks anything up.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.json.documents import Documents, documents
from penstock.json.paths import Path
from penstock.json.problems import Problem, problem
from penstock.json.strings import has_escape, unescape
from penstock.json.tokens import (
    ARRAY,
    BACKSLASH,
    CLOSE_OBJECT,
    COLON,
    COMMA,
    NULL,
    OPEN_ARRAY,
    OPEN_OBJECT,
    QUOTE,
    STRING,
    Bytes,
    compiled,
    container_end,
    document_start,
    inlined,
    scalar_end,
    skip_whitespace,
    string_end,
    value_kind,
)
from penstock.json.words import load_word

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Leaves:
    """Leaf ``k`` is the value ``buffer[start[k]:end[k]]`` in document ``record[k]``, of the path ``paths[column[k]]``.

    Leaves are in the order of the documents' bytes; columns are in the order of their first leaf.
    """

    documents: Documents
    record: Int32s
    column: Int32s
    kind: npt.NDArray[np.int8]
    """``Kind``; never ABSENT, NULL or OBJECT."""
    start: Int64s
    end: Int64s
    paths: tuple[Path, ...]
    broken_at: Int64s
    """Per document: -1 if it was read, else the position of its first wrong byte (``NO_BYTES`` for a null)."""
    replaced: int
    """Leaves left out because their key, or a key above them, came again in the same object."""

    @cached_property
    def problems(self) -> tuple[Problem, ...]:
        """Why documents could not be read. One Python step per bad document: they are few, and each gets a sentence."""
        return tuple(
            problem(self.documents, int(record), int(self.broken_at[record]))
            for record in np.flatnonzero(self.broken_at != -1)
        )


NO_BYTES = -2


def leaves(data: pa.Array | pa.ChunkedArray | Documents) -> Leaves:
    """Scan a (large) binary or string array of JSON documents."""
    docs = data if isinstance(data, Documents) else documents(data)
    found = _scan(docs.buffer, docs.offsets, docs.valid, _SEED)
    record, node, kind, start, end, broken_at, nodes, counts = found
    column, of_column = _columns(node, int(counts[_NODES]))
    return Leaves(
        docs, record, column, kind, start, end, _paths(nodes, of_column.tolist()), broken_at, int(counts[_REPLACED])
    )


def _paths(nodes: Nodes, wanted: list[int]) -> tuple[Path, ...]:
    """The keys from the root to each wanted node."""
    keys = nodes.keys.tobytes()
    parents, starts, stops = nodes.parent.tolist(), nodes.key_start.tolist(), nodes.key_stop.tolist()
    known: dict[int, Path] = {0: ()}
    paths = []
    for node in wanted:
        chain = []
        while node not in known:
            chain.append(node)
            node = parents[node]
        path = known[node]
        for node in reversed(chain):
            path = (*path, keys[starts[node] : stops[node]].decode())
            # A path as long as its depth for every level would be quadratic in deep documents: keep objects' paths only
            # where several leaves share them.
            if len(path) < 16:
                known[node] = path
        paths.append(path)
    return tuple(paths)


class Nodes(NamedTuple):
    """Every path met so far, as a tree: node 0 is the document, any other node a key under its parent."""

    parent: Int32s
    key_start: Int64s
    """Where in ``keys`` the node's key lies, unescaped."""
    key_stop: Int64s
    plain: npt.NDArray[np.bool_]
    """Whether the key reads the same in a document: nothing in it needs an escape."""
    hash: npt.NDArray[np.uint64]
    first: Int32s
    """The key that was last seen to come first in this node's object (-1: none)."""
    follower: Int32s
    """The key that was last seen to come next after this one in the same object (-1: none)."""
    member: Int64s
    """Where in the buffer this key was last seen."""
    slots: Int32s
    """Hash table of (parent, key): node, or 0 for a free slot. Its size is a power of two."""
    keys: npt.NDArray[np.uint8]


class Output(NamedTuple):
    """Where leaves are written, and the objects that are open during the walk."""

    record: Int32s
    node: Int32s
    kind: npt.NDArray[np.int8]
    start: Int64s
    end: Int64s
    open_node: Int32s
    open_at: Int64s


# Places in the array of counters.
_LEAVES = 0
_NODES = 1
_KEY_BYTES = 2
_REPLACED = 3
_HAS_REPEATS = 4
_COUNTERS = 5

_NO_ROOM = np.iinfo(np.int64).min
_SEED = np.uint64(int.from_bytes(os.urandom(8), "little"))
"""Secret per process: nobody can choose keys that all fall into one slot."""


@compiled
def _scan(
    buf: Bytes, offsets: Int64s, valid: npt.NDArray[np.bool_], seed: np.uint64
) -> tuple[Int32s, Int32s, npt.NDArray[np.int8], Int64s, Int64s, Int64s, Nodes, Int64s]:
    count = len(valid)
    counts = np.zeros(_COUNTERS, np.int64)
    counts[_NODES] = 1
    nodes = _new_nodes(64, 1024)
    output = _new_output(max(256, 32 * count), 64)
    broken_at = np.full(count, -1, np.int64)
    for record in range(count):
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
        i = _walk(buf, start, end, record, seed, nodes, output, counts)
        while i == _NO_ROOM:
            # The document is walked again from its start with twice the room; what is known of its keys stays.
            nodes = _grown_nodes(nodes, counts)
            output = _grown_output(output, before)
            counts[_LEAVES] = before
            counts[_HAS_REPEATS] = 0
            i = _walk(buf, start, end, record, seed, nodes, output, counts)
        if i >= 0:
            i = skip_whitespace(buf, i, end)
            if i < end:
                i = ~i
        if i < 0:
            broken_at[record] = ~i
            counts[_LEAVES] = before
        elif counts[_HAS_REPEATS] != 0:
            _drop_replaced(before, nodes, output, counts)
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


@compiled
def _walk(
    buf: Bytes, i: int, end: int, record: int, seed: np.uint64, nodes: Nodes, output: Output, counts: Int64s
) -> int:
    """Emit the leaves of the object at ``i``. Returns the index after it, ``~position`` if wrong, or ``_NO_ROOM``."""
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
            if guess >= 0 and _reads(buf, i + 1, end, nodes, guess):
                node = guess
                i += nodes.key_stop[guess] - nodes.key_start[guess] + 2
            else:
                i = string_end(buf, i, end)
                if i < 0:
                    return i
                node = _intern(buf, member + 1, i - 1, parent, seed, nodes, counts)
                if node < 0:
                    return _NO_ROOM
                if previous < 0:
                    nodes.first[parent] = node
                else:
                    nodes.follower[previous] = node
            i = skip_whitespace(buf, i, end)
            if i >= end or buf[i] != COLON:
                return ~i
            i = skip_whitespace(buf, i + 1, end)
            if i >= end:
                return ~i
            if nodes.member[node] >= opened_at:
                counts[_HAS_REPEATS] = 1
            nodes.member[node] = member
            c = buf[i]
            if c == OPEN_OBJECT:
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
            elif c == OPEN_ARRAY:
                i = container_end(buf, i, end)
                kind = ARRAY
            else:
                i = scalar_end(buf, i, end)
                kind = value_kind(buf, begin, i)
            if i < 0:
                return i
            if kind != NULL:
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


@inlined
def _reads(buf: Bytes, i: int, end: int, nodes: Nodes, node: int) -> bool:
    """Whether the document has this node's key at ``i``, followed by its closing quote."""
    k = nodes.key_start[node]
    stop = nodes.key_stop[node]
    after = i + stop - k
    if after >= end or buf[after] != QUOTE or not nodes.plain[node]:
        return False
    same = True
    while k + 8 <= stop:
        if load_word(buf, i) != load_word(nodes.keys, k):
            same = False
            break
        i += 8
        k += 8
    while same and k < stop:
        same = buf[i] == nodes.keys[k]
        i += 1
        k += 1
    return same


@compiled
def _intern(buf: Bytes, start: int, stop: int, parent: np.int32, seed: np.uint64, nodes: Nodes, counts: Int64s) -> int:
    """The node of the key ``[start, stop)`` (without quotes) under ``parent``, made if new; -1 if there is no room."""
    first = counts[_KEY_BYTES]
    if first + stop - start > len(nodes.keys):
        return -1
    if has_escape(buf, start, stop):
        last = unescape(buf, start, stop, nodes.keys, first)
    else:
        last = first
        for k in range(start, stop):
            nodes.keys[last] = buf[k]
            last += 1
    code = _hash(nodes.keys, first, last, parent, seed)
    mask = len(nodes.slots) - 1
    slot = np.int64(code & np.uint64(mask))
    while nodes.slots[slot] != 0:
        node = nodes.slots[slot]
        if nodes.hash[node] == code and nodes.parent[node] == parent:
            length = last - first
            known = nodes.key_start[node]
            if nodes.key_stop[node] - known == length:
                same = True
                for k in range(length):
                    if nodes.keys[known + k] != nodes.keys[first + k]:
                        same = False
                        break
                if same:
                    return int(node)
        slot = (slot + 1) & mask
    node = counts[_NODES]
    if node == len(nodes.parent):
        return -1
    counts[_NODES] = node + 1
    counts[_KEY_BYTES] = last
    plain = True
    for k in range(first, last):
        c = nodes.keys[k]
        if c < 0x20 or c in (QUOTE, BACKSLASH):
            plain = False
    nodes.parent[node] = parent
    nodes.key_start[node] = first
    nodes.key_stop[node] = last
    nodes.plain[node] = plain
    nodes.hash[node] = code
    nodes.slots[slot] = node
    return int(node)


@compiled
def _hash(keys: Bytes, start: int, stop: int, parent: np.int32, seed: np.uint64) -> np.uint64:
    code = seed ^ (np.uint64(parent) * np.uint64(0x9E3779B97F4A7C15))
    for k in range(start, stop):
        code = (code ^ np.uint64(keys[k])) * np.uint64(0x100000001B3)
        code ^= code >> np.uint64(29)
    code = (code ^ (code >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return code ^ (code >> np.uint64(32))


@compiled
def _drop_replaced(before: int, nodes: Nodes, output: Output, counts: Int64s) -> None:
    """Of the leaves from ``before`` on, keep those that lie in the last occurrence of each of their keys."""
    kept = before
    for leaf in range(before, counts[_LEAVES]):
        start = output.start[leaf]
        node = output.node[leaf]
        alive = True
        while node != 0:
            if start < nodes.member[node]:
                alive = False
                break
            node = nodes.parent[node]
        if alive:
            output.record[kept] = output.record[leaf]
            output.node[kept] = output.node[leaf]
            output.kind[kept] = output.kind[leaf]
            output.start[kept] = start
            output.end[kept] = output.end[leaf]
            kept += 1
    counts[_REPLACED] += counts[_LEAVES] - kept
    counts[_LEAVES] = kept


@compiled
def _new_nodes(room: int, key_room: int) -> Nodes:
    return Nodes(
        np.zeros(room, np.int32),
        np.zeros(room, np.int64),
        np.zeros(room, np.int64),
        np.zeros(room, np.bool_),
        np.zeros(room, np.uint64),
        np.full(room, -1, np.int32),
        np.full(room, -1, np.int32),
        np.full(room, -1, np.int64),
        np.zeros(4 * room, np.int32),
        np.zeros(key_room, np.uint8),
    )


@compiled
def _grown_nodes(old: Nodes, counts: Int64s) -> Nodes:
    used = counts[_NODES]
    new = _new_nodes(2 * len(old.parent), 2 * len(old.keys))
    new.parent[:used] = old.parent[:used]
    new.key_start[:used] = old.key_start[:used]
    new.key_stop[:used] = old.key_stop[:used]
    new.plain[:used] = old.plain[:used]
    new.hash[:used] = old.hash[:used]
    new.first[:used] = old.first[:used]
    new.follower[:used] = old.follower[:used]
    new.member[:used] = old.member[:used]
    new.keys[: counts[_KEY_BYTES]] = old.keys[: counts[_KEY_BYTES]]
    mask = len(new.slots) - 1
    for node in range(1, used):
        slot = np.int64(new.hash[node] & np.uint64(mask))
        while new.slots[slot] != 0:
            slot = (slot + 1) & mask
        new.slots[slot] = node
    return new


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
