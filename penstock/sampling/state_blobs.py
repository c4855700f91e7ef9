"""A sampler's state as bytes: a row of blobs, each with the moves of a batch, or with a part of all that is known.

Most of it is packed (``packed_rows.py``). An item has the key of the move by which it waits, and is written without it.

A blob says what its numbers mean (which policies, which conditions), so a state is understood under another config,
too: what belongs to a policy that is gone belongs to none.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
import numpy.typing as npt

from penstock.holding.item import ITEM, KEY, Items
from penstock.holding.item_chains import NONE
from penstock.holding.item_columns import ItemColumns
from penstock.holding.key_table import KeyTable, Numbers
from penstock.holding.packed_rows import KEY_COLUMNS, pack_columns, pack_rows, unpack_rows
from penstock.sampling.journal import EMPTY, MOVE, WAIT, Moves
from penstock.sampling.span_item import NO_POLICY
from penstock.sampling.trace_homes import TRACE, Rows, Words

VERSION = 3
ROWS_PER_BLOB = 1 << 16
ITEMS_PER_BLOB = 1 << 17
BYTES_PER_TRACE, BYTES_PER_ITEM = 40, 8
"""What a blob takes for each, about."""

_HEAD = struct.Struct("<BI4Q")
"""The version, the bytes of the header, and those of the moves, of rows, of keys and of items."""
_KIND = np.dtype([("kind", "<i4")])
_OWNED_ITEM = np.dtype([("owner", "<i4"), *ITEM.descr])
_LINKS = ("older", "newer")
"""Columns of a trace that mean nothing outside of its table."""


@dataclass(frozen=True)
class Header:
    """What a sampler knows besides its traces, and what the numbers in its rows mean."""

    policies: Sequence[str]
    """By number."""
    conditions: Sequence[str] = ()
    """By bit."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Those that a command has set, by policy."""
    limits: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """What is left, and when it was added to, by policy."""
    stress: float | None = None
    primary: int | None = None
    """How many traces may wait in the primary home; ``None``: all that ever may."""


@dataclass(frozen=True)
class Blob:
    header: Header
    moves: Moves
    items: Items


def encode(header: Header, moves: Moves, items: Items) -> bytes:
    text = json.dumps(asdict(header)).encode()
    kinds, keys = np.empty(len(moves.kinds), _KIND), np.empty(len(moves.keys), KEY)
    owned = ItemColumns(_OWNED_ITEM, {"owner": moves.owners, **{name: items[name] for name in ITEM.names or ()}})
    kinds["kind"] = moves.kinds
    keys["high"], keys["low"] = moves.keys[:, 0], moves.keys[:, 1]
    parts = (pack_rows(kinds), pack_rows(moves.rows, _LINKS), pack_rows(keys), pack_columns(owned, KEY_COLUMNS))
    return b"".join([_HEAD.pack(VERSION, len(text), *map(len, parts)), text, *parts])


def decode(blob: bytes) -> Blob:
    if blob[0] != VERSION:
        raise ValueError(
            f"the state of this sampler has version {blob[0]}, and this release reads version {VERSION}."
            " Run the release that has written it, or reset the route."
        )
    _, text, *sizes = _HEAD.unpack_from(blob)
    header = Header(**json.loads(blob[_HEAD.size : _HEAD.size + text]))
    parts, at = [], _HEAD.size + text
    for size, kind in zip(sizes, (_KIND, TRACE, KEY, _OWNED_ITEM), strict=True):
        parts.append(unpack_rows([blob[at : at + size]], kind))
        at += size
    kinds, rows, keys, owned = parts
    rows["older"] = rows["newer"] = NONE
    words = np.stack([keys["high"], keys["low"]], axis=1)
    moves = Moves(kinds["kind"].astype(np.uint8), rows, words, owned["owner"].astype(np.int64))
    return Blob(header, moves, _with_keys(owned, moves))


def snapshot(header: Header, rows: Rows, waiting: Iterable[Items]) -> Iterator[bytes]:
    """Blobs that build a state anew: its traces in the order of use, then what waits, in parts. The rows are written
    to."""
    rows["older"] = rows["newer"] = NONE
    for at in range(0, max(len(rows), 1), ROWS_PER_BLOB):
        some = rows[at : at + ROWS_PER_BLOB]
        moves = Moves(np.full(len(some), MOVE, np.uint8), some, np.empty((0, 2), np.uint64), np.empty(0, np.int64))
        yield encode(header, moves, np.empty(0, ITEM))
    for items in waiting:
        keys, owners = _different_keys(items)
        moves = Moves(np.full(len(keys), WAIT, np.uint8), np.empty(0, TRACE), keys, owners)
        yield encode(header, moves, items)


def renumbered(rows: Rows, then: Header, now: Header) -> Rows:
    """Rows with the numbers that policies and conditions have now. What is gone is left out."""
    if list(then.policies) != list(now.policies):
        numbers = np.full(NO_POLICY + 1, NO_POLICY, np.int32)
        for number, name in enumerate(then.policies):
            numbers[number] = list(now.policies).index(name) if name in now.policies else NO_POLICY
        rows["policy"] = numbers[rows["policy"]]
    if list(then.conditions) != list(now.conditions):
        masks = rows["kept_mask"].copy()
        rows["kept_mask"] = 0
        for bit, condition in enumerate(then.conditions):
            if condition in now.conditions:
                met = masks >> np.uint64(bit) & np.uint64(1)
                rows["kept_mask"] |= met << np.uint64(list(now.conditions).index(condition))
    return rows


def _with_keys(owned: npt.NDArray[np.void], moves: Moves) -> Items:
    """The items, each with the key of its move."""
    keys = np.zeros((len(moves.kinds), 2), np.uint64)
    moved = moves.kinds == MOVE
    keys[moved, 0], keys[moved, 1] = moves.rows["high"], moves.rows["low"]
    keys[~moved & (moves.kinds < EMPTY)] = moves.keys
    items = np.empty(len(owned), ITEM)
    for name in ITEM.names or ():
        items[name] = owned[name]
    items["high"], items["low"] = keys[moves.owners, 0], keys[moves.owners, 1]
    return items


def _different_keys(items: Items) -> tuple[Words, Numbers]:
    """The keys of items, each once, and which of them each item has."""
    high, low = np.array(items["high"]), np.array(items["low"])
    owners, found = KeyTable().add(high, low)
    keys = np.empty((found, 2), np.uint64)
    keys[owners, 0], keys[owners, 1] = high, low
    return keys, owners
