"""Items that wait, in chains: one chain per number, which someone else gives out.

Kept in columns, in the order of arrival. Compiled code may chain and take items by itself (``Chains``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.compiled import borrowing, compiled
from penstock.holding.item import ITEM, UNTIMED, Items
from penstock.holding.key_table import Numbers

NONE, GONE = -1, -2
MOST_ROOM, LEAST_ROOM = 8, 1 << 16
"""Room for more than so many times what is there is given back, but for a little."""

FIRST, LAST = range(2)
"""Columns of ``Chains.ends``."""


class Chains(NamedTuple):
    """The chains as compiled code sees them. They are valid until items or numbers are added."""

    ends: Numbers
    """Per number, the places of its first item, ``NONE`` if it has none, and of its last."""
    following: Numbers
    """Per place, the next one of its chain; ``NONE`` for the last, ``GONE`` for an item that is in no chain."""
    live: Numbers
    """One number: how many items are in chains."""


class ItemChains:
    def __init__(self) -> None:
        self._ends: Numbers = np.empty((0, 2), np.int64)
        self.items: Items = np.empty(0, ITEM)
        """By place; only those before ``used`` mean anything."""
        self._following: Numbers = np.empty(0, np.int64)
        self._live = np.zeros(1, np.int64)
        self.used = 0
        self._lowest: dict[int, int] = {}
        """Per partition, a place before which nothing of it waits."""

    def __len__(self) -> int:
        """How many items are in chains."""
        return int(self._live[0])

    @property
    def chains(self) -> Chains:
        return Chains(self._ends, self._following, self._live)

    def make_numbers(self, size: int) -> None:
        """Make room for all numbers below ``size``."""
        if size > len(self._ends):
            more = max(len(self._ends), size - len(self._ends))
            self._ends = np.concatenate([self._ends, np.full((more, 2), NONE, np.int64)])

    def add(self, numbers: Numbers, items: Items) -> None:
        """Items, each for the chain of its number, in the order of the log."""
        self.make_numbers(int(numbers.max(initial=-1)) + 1)
        place = self.append(items)
        _chain_all(self.chains, numbers, place)

    def append(self, items: Items) -> int:
        """Items that are in no chain yet, in the order of the log; the place of the first. Whoever appends them chains
        those that are to wait before anything else is done."""
        place, needed = self.used, self.used + len(items)
        if needed > len(self.items):
            room = max(2 * len(self.items), needed)
            before, self.items = self.items, np.empty(room, ITEM)
            _copy_items(before[:place], self.items, 0)
            self._following = np.concatenate([self._following[:place], np.empty(room - place, np.int64)])
        _copy_items(items, self.items, place)
        self._following[place:needed] = GONE
        for partition in _different(items["partition"]):
            self._lowest.setdefault(partition, place)
        self.used = needed
        return place

    def release(self, numbers: Numbers, since: int = 0) -> tuple[Items, Items]:
        """Take out the chains of these numbers, one by one, each as it came: what stands before the place ``since``,
        and what stands behind it."""
        found = np.empty(len(self), np.int64)
        rows = found[: _take_all(self.chains, numbers, found)]
        return self.items.take(rows[rows < since]), self.items.take(rows[rows >= since])

    @property
    def sparse(self) -> bool:
        """Whether more than half of the places are of items that are in no chain."""
        return 2 * len(self) < self.used

    def compact(self) -> None:
        """Drop what is in no chain. Done when ``sparse``, it at most doubles the work of adding."""
        # Where it stands: memory that is asked for anew costs more than all the rest.
        self.used = _move_up(self.chains, self.items, self.used)
        if len(self.items) > MOST_ROOM * max(self.used, LEAST_ROOM):
            self.items, self._following = self.items[: self.used].copy(), self._following[: self.used].copy()
        self._lowest = dict.fromkeys(_different(self.items["partition"][: self.used]), 0)

    def is_live(self) -> npt.NDArray[np.bool_]:
        """Per place, whether its item is in a chain."""
        live: npt.NDArray[np.bool_] = self._following[: self.used] != GONE
        return live

    def all_items(self) -> Items:
        items: Items = self.items[: self.used].compress(self.is_live())
        return items

    def parts(self, size: int) -> Iterator[Items]:
        """The same, in parts of so many."""
        places = np.flatnonzero(self.is_live())
        yield from (self.items.take(places[at : at + size]) for at in range(0, len(places), size))

    def first_items(self) -> tuple[Numbers, Items]:
        """The numbers that have items, and the first item of each."""
        numbers = np.flatnonzero(self._ends[:, FIRST] != NONE)
        return numbers, self.items.take(self._ends[numbers, FIRST])

    def set_times(self, now: int, start: int) -> None:
        """Give all untimed items from this place on a time."""
        times = self.items["time"][start : self.used]
        times[times == UNTIMED] = now

    def lowest_offsets(self) -> Mapping[int, int]:
        """By partition, the lowest offset that an item waits at."""
        found = {}
        for partition, place in self._lowest.items():
            self._lowest[partition] = first = _first_live(self.items, self._following, partition, place, self.used)
            if first < self.used:
                found[partition] = int(self.items["offset"][first])
        return found


@borrowing
def _copy_items(items: Items, target: Items, place: int) -> None:
    """Row by row: NumPy goes through all rows once for each of their columns."""
    for row in range(len(items)):
        item, copy = items[row], target[place + row]
        copy["high"], copy["low"] = item["high"], item["low"]
        copy["offset"], copy["time"], copy["order"] = item["offset"], item["time"], item["order"]
        copy["partition"], copy["item"], copy["bits"] = item["partition"], item["item"], item["bits"]


@borrowing
def chain_items(chains: Chains, number: int, rows: Numbers, start: int) -> None:
    """Put items at the end of a chain: those so many rows behind the place ``start``."""
    following = chains.following
    first, last = chains.ends[number, FIRST], chains.ends[number, LAST]
    for row in rows:
        place = start + row
        if first == NONE:
            first = place
        else:
            following[last] = place
        following[place] = NONE
        last = place
    chains.ends[number, FIRST], chains.ends[number, LAST] = first, last
    chains.live[0] += len(rows)


@borrowing
def take_items(chains: Chains, number: int, found: Numbers, count: int) -> int:
    """Take all items out of a chain: their places are added to the ``count`` that are found, and how many that are then
    is returned."""
    following = chains.following
    place = chains.ends[number, FIRST]
    before = count
    while place != NONE:
        found[count] = place
        count += 1
        after = following[place]
        following[place] = GONE
        place = after
    chains.ends[number, FIRST] = NONE
    chains.live[0] -= count - before
    return count


@borrowing
def drop_items(chains: Chains, number: int, mark: int) -> tuple[int, int]:
    """Take all items out of a chain: how many stand before the place ``mark``, and how many do not."""
    following = chains.following
    place = chains.ends[number, FIRST]
    before = after = 0
    while place != NONE:
        if place < mark:
            before += 1
        else:
            after += 1
        next_place = following[place]
        following[place] = GONE
        place = next_place
    chains.ends[number, FIRST] = NONE
    chains.live[0] -= before + after
    return before, after


@borrowing
def take_first(chains: Chains, number: int) -> int:
    """Take the first item out of a chain that has one: its place."""
    place = int(chains.ends[number, FIRST])
    chains.ends[number, FIRST] = chains.following[place]
    chains.following[place] = GONE
    chains.live[0] -= 1
    return place


@borrowing
def _chain_all(chains: Chains, numbers: Numbers, start: int) -> None:
    ends, following = chains.ends, chains.following
    for row in range(len(numbers)):
        number, place = numbers[row], start + row
        if ends[number, FIRST] == NONE:
            ends[number, FIRST] = place
        else:
            following[ends[number, LAST]] = place
        ends[number, LAST] = place
        following[place] = NONE
    chains.live[0] += len(numbers)


@borrowing
def _take_all(chains: Chains, numbers: Numbers, found: Numbers) -> int:
    count = 0
    for number in numbers:
        count = take_items(chains, number, found, count)
    return count


@compiled
def _move_up(chains: Chains, items: Items, used: int) -> int:
    """Leave out what is in no chain; how many there are then."""
    ends, following = chains.ends, chains.following
    moved = np.empty(used, np.int64)
    count = 0
    for place in range(used):
        moved[place] = count
        count += following[place] != GONE
    for place in range(used):
        if following[place] != GONE:
            items[moved[place]] = items[place]
            following[moved[place]] = moved[following[place]] if following[place] >= 0 else NONE
    for number in range(len(ends)):
        if ends[number, FIRST] != NONE:
            ends[number, FIRST] = moved[ends[number, FIRST]]
            ends[number, LAST] = moved[ends[number, LAST]]
    return count


@borrowing
def _first_live(items: Items, following: Numbers, partition: int, place: int, used: int) -> int:
    while place < used and (items[place]["partition"] != partition or following[place] == GONE):
        place += 1
    return place


def _different(partitions: npt.NDArray[np.int32]) -> list[int]:
    # Sorting all of them to find the few that there are would take longer than all else.
    if len(partitions) == 0:
        return []
    changes = np.flatnonzero(partitions[1:] != partitions[:-1]) + 1
    found: list[int] = np.unique(partitions[np.append(0, changes)]).tolist()
    return found
