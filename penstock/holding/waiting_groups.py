"""Groups of items that wait for one of them to close their group, until they have waited long enough, or until they are
told to wait no longer.

Only ticks tell the time: an item begins to wait at the first tick of a batch after its own. So no clock that is set,
neither here nor where the records were made, makes a group go on early or wait for ever; nor does a tick that was
written long before the item, and is read with it.

The state is a row of blobs, one per batch: keys whose groups went on, then what began to wait. Once the blobs have more
than twice the bytes of what waits, or are many, what waits is written anew and takes the place of all.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from penstock.holding.decision import Decision, StateChange
from penstock.holding.held_items import Delta, HeldItems
from penstock.holding.item import ITEM, KEY, UNTIMED, Items, Keys, sorted_by_key, sorted_by_log
from penstock.holding.key_table import KeyTable, Numbers, Words
from penstock.holding.packed_rows import pack_rows, unpack_rows

CLOSES = 1
"""The bit of an item that closes its group."""

LEAST_BYTES = 1 << 20
"""Smaller state is not tidied up for its bytes."""
MOST_BLOBS = 1000
ITEMS_PER_BLOB = 1 << 17
BYTES_PER_ITEM = 24
"""What a blob takes for each, about."""

_HEAD = struct.Struct("<qq?")
"""The time of the last tick, the bytes of the keys that went on, and whether that tick came with this batch."""
_LONG_AGO = -(2**62)


class WaitingGroups:
    """``at_most`` in µs: so long after the first tick that its first item has seen a group goes on, closed or not."""

    def __init__(self, at_most: int) -> None:
        self._at_most = at_most
        self._held = HeldItems()
        self._now = _LONG_AGO
        self._sizes: list[int] = []
        """The bytes of every blob."""

    def apply(self, blob: bytes) -> None:
        self._now, size, ticked = _HEAD.unpack_from(blob)
        if ticked:
            self._held.set_times(self._now)
        keys, items = blob[_HEAD.size : _HEAD.size + size], blob[_HEAD.size + size :]
        self._held.apply(Delta(unpack_rows([keys], KEY), unpack_rows([items], ITEM)))
        self._sizes.append(len(blob))

    def drop(self, blobs: int) -> None:
        del self._sizes[:blobs]

    def __len__(self) -> int:
        """How many items wait."""
        return len(self._held)

    def decide(
        self, items: Items, ticks: Sequence[int] = (), releases: Sequence[int] = (), commands: Items | None = None
    ) -> Decision:
        """Of each key, everything up to the last item that closes it goes on, with what waited of it. ``ticks`` are
        times: what has waited long enough by the last of them goes on too. So does, with its whole group, what stands
        at or before one of ``releases``, points in the order of the log."""
        rows = items.take(sorted_by_key(items))
        goes = _up_to_last_close(rows)
        closed, stays = rows.compress(goes), rows.compress(~goes)
        stays = stays.take(sorted_by_log(stays))
        stays["time"] = UNTIMED
        ticked = len(self._held) > 0 and max(ticks, default=self._now) > self._now
        if ticked:
            self._now = max(ticks)
            self._held.set_times(self._now)
        _, let_go = self._held.release(self._held.find(closed["high"], closed["low"]))
        mark = self._held.arrived
        self._held.add(stays)
        due = self._held.find_up_to(max(releases)) if releases else np.empty(0, np.int64)
        if ticked:
            due = np.union1d(due, self._overdue())
        overdue, late = self._held.release(due, since=mark)
        gone = np.concatenate([let_go, overdue])
        return Decision(
            released=np.concatenate([gone, closed, late]),
            passed=len(closed) + len(late),
            let_go=len(gone),
            held=len(stays) - len(late),
            waiting=len(self._held),
            change=self._change(_keys(gone), stays.compress(~_has_key_of(stays, late)), ticked),
            holds=self._held.lowest_offsets(),
        )

    def _overdue(self) -> Numbers:
        numbers, times = self._held.first_times()
        return numbers[times <= self._now - self._at_most]

    def _change(self, released: Keys, added: Items, ticked: bool) -> StateChange:
        if len(released) == 0 and len(added) == 0 and not ticked:
            return StateChange()
        blobs = len(self._sizes)
        if blobs < MOST_BLOBS and sum(self._sizes) <= LEAST_BYTES + 2 * len(self._held) * BYTES_PER_ITEM:
            return StateChange([self._blob(released, added, ticked)])
        self._sizes = []
        nothing, waiting = np.empty(0, KEY), self._held.all_items()
        starts = range(0, max(len(waiting), 1), ITEMS_PER_BLOB)
        return StateChange([self._blob(nothing, waiting[at : at + ITEMS_PER_BLOB], False) for at in starts], blobs)

    def _blob(self, released: Keys, added: Items, ticked: bool) -> bytes:
        keys = pack_rows(released)
        blob = _HEAD.pack(self._now, len(keys), ticked) + keys + pack_rows(added)
        self._sizes.append(len(blob))
        return blob


def _up_to_last_close(rows: Items) -> np.ndarray:
    """Whether each row, sorted by key and order, has a closing one of its key at or behind it."""
    if len(rows) == 0:
        return np.empty(0, np.bool_)
    key = _key_numbers(_last_of_key(rows))
    closes = np.where(rows["bits"] & CLOSES, np.arange(len(rows)), -1)
    last_close = np.full(int(key[-1]) + 1, -1)
    np.maximum.at(last_close, key, closes)
    return np.arange(len(rows)) <= last_close[key]


def _has_key_of(items: Items, others: Items) -> np.ndarray:
    found = KeyTable.of(*_halves(_keys(others))).find(*_halves(items))
    return found >= 0


def _halves(rows: Items | Keys) -> tuple[Words, Words]:
    return np.ascontiguousarray(rows["high"]), np.ascontiguousarray(rows["low"])


def _last_of_key(rows: Items) -> np.ndarray:
    """Whether each row, sorted by key, is the last one of its key."""
    return np.append((rows["high"][1:] != rows["high"][:-1]) | (rows["low"][1:] != rows["low"][:-1]), True)


def _key_numbers(last_of_key: np.ndarray) -> Numbers:
    return np.cumsum(np.append(0, last_of_key[:-1]))


def _keys(items: Items) -> Keys:
    keys = np.empty(len(items), KEY)
    keys["high"], keys["low"] = items["high"], items["low"]
    return np.unique(keys)
