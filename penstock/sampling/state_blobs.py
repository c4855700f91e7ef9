"""A sampler's state as bytes: a row of blobs, each with the moves of a batch, or with a part of all that is known.

A blob says what its numbers mean (which policies, which conditions), so a state is understood under another config,
too: what belongs to a policy that is gone belongs to none.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from penstock.holding.item import ITEM, Items
from penstock.holding.key_table import KeyTable, Numbers
from penstock.sampling.journal import MOVE, WAIT, Moves
from penstock.sampling.span_item import NO_POLICY
from penstock.sampling.trace_homes import TRACE, Rows, Words

VERSION = 1
ROWS_PER_BLOB = 1 << 16
ITEMS_PER_BLOB = 1 << 17

_HEAD = struct.Struct("<BIQQQQ")
"""The version, the bytes of the header, and how many moves, rows, keys and items there are."""
_OWNER = np.dtype("<u4")
_KEY = np.dtype(("<u8", 2))


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
    head = _HEAD.pack(VERSION, len(text), len(moves.kinds), len(moves.rows), len(moves.keys), len(items))
    parts = (moves.kinds, moves.rows, moves.keys, moves.owners.astype(_OWNER), items)
    return b"".join([head, text, *(np.ascontiguousarray(part).data for part in parts)])


def decode(blob: bytes) -> Blob:
    if blob[0] != VERSION:
        raise ValueError(
            f"the state of this sampler has version {blob[0]}, and this release reads version {VERSION}."
            " Run the release that has written it, or reset the route."
        )
    _, text, kinds, rows, keys, items = _HEAD.unpack_from(blob)
    header = Header(**json.loads(blob[_HEAD.size : _HEAD.size + text]))
    at = _HEAD.size + text
    columns: list[Any] = []
    for dtype, count in ((np.dtype(np.uint8), kinds), (TRACE, rows), (_KEY, keys), (_OWNER, items), (ITEM, items)):
        # Copied: in a blob they stand anywhere, and compiled code wants them aligned.
        columns.append(np.frombuffer(blob, dtype, count, at).copy())
        at += dtype.itemsize * count
    return Blob(header, Moves(columns[0], columns[1], columns[2], columns[3].astype(np.int64)), columns[4])


def snapshot(header: Header, rows: Rows, waiting: Iterable[Items]) -> Iterator[bytes]:
    """Blobs that build a state anew: its traces, those of each home from the oldest on, then what waits, in parts. The
    rows are written to."""
    rows["older"] = rows["newer"] = -1
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


def _different_keys(items: Items) -> tuple[Words, Numbers]:
    """The keys of items, each once, and which of them each item has."""
    high, low = np.array(items["high"]), np.array(items["low"])
    owners, found = KeyTable().add(high, low)
    keys = np.empty((found, 2), np.uint64)
    keys[owners, 0], keys[owners, 1] = high, low
    return keys, owners
