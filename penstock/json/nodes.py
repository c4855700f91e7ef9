"""Every path that the documents of a batch have, as a tree of keys that grows while they are read.

A key written with escapes is the same node as its plain spelling; the identity of paths is exact. Each node remembers
which key came first in its object and which came next after it, so that in documents which resemble each other the next
key is guessed and compared instead of looked up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.compiled import Bytes, borrowing, compiled, inlined
from penstock.json.paths import Path
from penstock.json.strings import has_escape, unescape
from penstock.json.tokens import BACKSLASH, QUOTE
from penstock.json.words import load_word

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]

# Indexes into an array of counters; callers may add their own after these.
NODES = 0
KEY_BYTES = 1
NODE_COUNTERS = 2


class Nodes(NamedTuple):
    """Every path met so far, as a tree: node 0 is the document, any other node a key under its parent."""

    parent: Int32s
    key_start: Int64s
    """Where the node's key is in ``keys``, unescaped."""
    key_stop: Int64s
    plain: npt.NDArray[np.bool_]
    """Whether the key is written the same in a document: nothing in it needs an escape."""
    hash: npt.NDArray[np.uint64]
    first: Int32s
    """The key that came first when this node's object was last seen (-1: none)."""
    follower: Int32s
    """The key that followed when this key was last seen in its object (-1: none)."""
    member: Int64s
    """Where in the buffer this key was last seen."""
    slots: Int32s
    """Hash table of (parent, key): node, or 0 for a free slot. Its size is a power of two."""
    keys: npt.NDArray[np.uint8]


def paths_of(nodes: Nodes, wanted: list[int]) -> tuple[Path, ...]:
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


@compiled
def new_nodes(room: int, key_room: int) -> Nodes:
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
def grown_nodes(old: Nodes, counts: Int64s) -> Nodes:
    used = counts[NODES]
    new = new_nodes(2 * len(old.parent), 2 * len(old.keys))
    new.parent[:used] = old.parent[:used]
    new.key_start[:used] = old.key_start[:used]
    new.key_stop[:used] = old.key_stop[:used]
    new.plain[:used] = old.plain[:used]
    new.hash[:used] = old.hash[:used]
    new.first[:used] = old.first[:used]
    new.follower[:used] = old.follower[:used]
    new.member[:used] = old.member[:used]
    new.keys[: counts[KEY_BYTES]] = old.keys[: counts[KEY_BYTES]]
    mask = len(new.slots) - 1
    for node in range(1, used):
        slot = np.int64(new.hash[node] & np.uint64(mask))
        while new.slots[slot] != 0:
            slot = (slot + 1) & mask
        new.slots[slot] = node
    return new


@inlined
def matches_key(buf: Bytes, i: int, end: int, nodes: Nodes, node: int) -> bool:
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


@borrowing
def intern(buf: Bytes, start: int, stop: int, parent: np.int32, seed: np.uint64, nodes: Nodes, counts: Int64s) -> int:
    """The node of the key ``[start, stop)`` (without quotes) under ``parent``, created if new; -1 if there is no
    room."""
    first = counts[KEY_BYTES]
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
    node = counts[NODES]
    if node == len(nodes.parent):
        return -1
    counts[NODES] = node + 1
    counts[KEY_BYTES] = last
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


@borrowing
def _hash(keys: Bytes, start: int, stop: int, parent: np.int32, seed: np.uint64) -> np.uint64:
    code = seed ^ (np.uint64(parent) * np.uint64(0x9E3779B97F4A7C15))
    for k in range(start, stop):
        code = (code ^ np.uint64(keys[k])) * np.uint64(0x100000001B3)
        code ^= code >> np.uint64(29)
    code = (code ^ (code >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return code ^ (code >> np.uint64(32))
