"""What waits, by key.

Kept in columns, in the order of arrival. What one batch has changed can be taken as a delta, and deltas in their order
build the same again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from penstock.compiled import compiled
from penstock.holding.item import ITEM, UNTIMED, Items, Keys
from penstock.holding.key_table import KeyTable, Numbers, Words


@dataclass(frozen=True)
class Delta:
    """What one batch has changed: keys of which nothing waits any more that waited before, then what was added."""

    released: Keys
    added: Items


class HeldItems:
    def __init__(self) -> None:
        self._keys = KeyTable()
        self._first: Numbers = np.empty(0, np.int64)
        """Per key number, its first item; -1 for none."""
        self._last: Numbers = np.empty(0, np.int64)
        self._items: Items = np.empty(0, ITEM)
        self._next: Numbers = np.empty(0, np.int64)
        """Per item, the next one of its key; ``_NONE`` for the last, ``_GONE`` for an item that is released."""
        self._used = 0
        self._live = 0
        self._timed = 0
        """Items from this place on may be untimed."""
        self._lowest: dict[int, int] = {}
        """Per partition, a place before which nothing of it waits."""

    def apply(self, delta: Delta) -> None:
        self.release(self.find(delta.released["high"], delta.released["low"]))
        self.add(delta.added)

    def __len__(self) -> int:
        """How many items wait."""
        return self._live

    def find(self, high: Words, low: Words) -> Numbers:
        """The numbers of those of these keys of which something waits, each once."""
        numbers = np.unique(self.numbers(high, low))
        return numbers[numbers >= 0]

    def find_up_to(self, stamp: int) -> Numbers:
        """The numbers of the keys of which an item waits that stands at or before this point in the order of the
        log, each once."""
        waits = self._next[: self._used] != _GONE
        old = self._items[: self._used][waits & (self._items["order"][: self._used] <= stamp)]
        return self.find(old["high"], old["low"])

    def add(self, items: Items) -> None:
        """Items that wait from now on, in the order of the log."""
        if len(items) == 0:
            return
        self._make_room(len(items))
        high, low = (np.ascontiguousarray(items[name]) for name in ("high", "low"))
        numbers, _ = self._keys.add(high, low)
        if self._keys.size > len(self._first):
            more = np.full(max(len(self._first), self._keys.size - len(self._first)), _NONE, np.int64)
            self._first, self._last = np.concatenate([self._first, more]), np.concatenate([self._last, more])
        self._items[self._used : self._used + len(items)] = items
        for partition in np.unique(items["partition"]).tolist():
            self._lowest.setdefault(partition, self._used)
        _chain(numbers, self._first, self._last, self._next, self._used)
        self._used += len(items)
        self._live += len(items)

    @property
    def arrived(self) -> int:
        """A mark for ``release``: what is added from now on has come after it."""
        return self._used

    def release(self, numbers: Numbers, since: int = 0) -> tuple[Items, Items]:
        """Take out everything that waits under these keys, key by key, each as it came: what came before the mark
        ``since``, and what came after it. Marks end with this call."""
        found = np.empty(self._live, np.int64)
        count = _unchain(numbers, self._first, self._next, found)
        self._live -= count
        self._keys.remove(numbers)
        rows = found[:count]
        earlier, later = self._items[rows[rows < since]], self._items[rows[rows >= since]]
        if 2 * self._live < self._used:
            self._compact()
        return earlier, later

    def numbers(self, high: Words, low: Words) -> Numbers:
        """The number of each key; -1 for one of which nothing waits."""
        return self._keys.find(np.ascontiguousarray(high), np.ascontiguousarray(low))

    def first_times(self) -> tuple[Numbers, Numbers]:
        """The numbers of all keys, and the time of the first item of each."""
        numbers = np.flatnonzero(self._first != _NONE)
        return numbers, self._items["time"][self._first[numbers]]

    def set_times(self, now: int) -> None:
        """Give all untimed items this time."""
        times = self._items["time"][self._timed : self._used]
        times[times == UNTIMED] = now
        self._timed = self._used

    def lowest_offsets(self) -> Mapping[int, int]:
        """By partition, the lowest offset that an item waits at."""
        partitions, found = self._items["partition"], {}
        for partition, place in self._lowest.items():
            self._lowest[partition] = first = _first_live(partitions, self._next, partition, place, self._used)
            if first < self._used:
                found[partition] = int(self._items["offset"][first])
        return found

    def all_items(self) -> Items:
        items: Items = self._items[: self._used][self._next[: self._used] != _GONE]
        return items

    def _make_room(self, more: int) -> None:
        needed = self._used + more
        if needed > len(self._items):
            room = max(2 * len(self._items), needed)
            self._items = np.concatenate([self._items[: self._used], np.empty(room - self._used, ITEM)])
            self._next = np.concatenate([self._next[: self._used], np.empty(room - self._used, np.int64)])

    def _compact(self) -> None:
        """Drop what is released: at most as often as it doubles the work of adding."""
        live = self.all_items()
        timed = int(np.count_nonzero(self._next[: self._timed] != _GONE))
        self._keys = KeyTable()
        self._first, self._last = np.empty(0, np.int64), np.empty(0, np.int64)
        self._items, self._next = np.empty(0, ITEM), np.empty(0, np.int64)
        self._used = self._live = 0
        self._lowest = {}
        self.add(live)
        self._timed = timed


_NONE, _GONE = -1, -2


@compiled
def _chain(numbers: Numbers, first: Numbers, last: Numbers, following: Numbers, start: int) -> None:
    for row in range(len(numbers)):
        number, place = numbers[row], start + row
        if first[number] == _NONE:
            first[number] = place
        else:
            following[last[number]] = place
        last[number] = place
        following[place] = _NONE


@compiled
def _unchain(numbers: Numbers, first: Numbers, following: Numbers, found: Numbers) -> int:
    count = 0
    for row in range(len(numbers)):
        place = first[numbers[row]]
        first[numbers[row]] = _NONE
        while place != _NONE:
            found[count] = place
            count += 1
            after = following[place]
            following[place] = _GONE
            place = after
    return count


@compiled
def _first_live(partitions: Numbers, following: Numbers, partition: int, place: int, used: int) -> int:
    while place < used and (partitions[place] != partition or following[place] == _GONE):
        place += 1
    return place
