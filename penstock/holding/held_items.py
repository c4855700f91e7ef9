"""What waits, by key.

Kept in columns, in the order of arrival. What one batch has changed can be taken as a delta, and deltas in their order
build the same again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from penstock.holding.item import Items, Keys
from penstock.holding.item_chains import ItemChains
from penstock.holding.key_table import KeyTable, Numbers, Words


@dataclass(frozen=True)
class Delta:
    """What one batch has changed: keys of which nothing waits any more that waited before, then what was added."""

    released: Keys
    added: Items


class HeldItems:
    def __init__(self) -> None:
        self._keys = KeyTable()
        self._chains = ItemChains()
        """By the number of the key."""
        self._timed = 0
        """Items from this place on may be untimed."""

    def apply(self, delta: Delta) -> None:
        self.release(self.find(delta.released["high"], delta.released["low"]))
        self.add(delta.added)

    def __len__(self) -> int:
        """How many items wait."""
        return len(self._chains)

    @property
    def keys(self) -> int:
        """Of how many keys something waits."""
        return len(self._keys)

    def find(self, high: Words, low: Words) -> Numbers:
        """The numbers of those of these keys of which something waits, each once."""
        numbers = np.unique(self.numbers(high, low))
        return numbers[numbers >= 0]

    def find_up_to(self, stamp: int) -> Numbers:
        """The numbers of the keys of which an item waits that stands at or before this point in the order of the
        log, each once."""
        waiting = self._chains.all_items()
        old = waiting[waiting["order"] <= stamp]
        return self.find(old["high"], old["low"])

    def add(self, items: Items) -> None:
        """Items that wait from now on, in the order of the log."""
        if len(items) == 0:
            return
        high, low = (np.ascontiguousarray(items[name]) for name in ("high", "low"))
        numbers, _ = self._keys.add(high, low)
        self._chains.add(numbers, items)

    @property
    def arrived(self) -> int:
        """A mark for ``release``: what is added from now on has come after it."""
        return self._chains.used

    def release(self, numbers: Numbers, since: int = 0) -> tuple[Items, Items]:
        """Take out everything that waits under these keys, key by key, each as it came: what came before the mark
        ``since``, and what came after it. Marks end with this call."""
        earlier, later = self._chains.release(numbers, since)
        self._keys.remove(numbers)
        if self._chains.sparse:
            self._compact()
        return earlier, later

    def numbers(self, high: Words, low: Words) -> Numbers:
        """The number of each key; -1 for one of which nothing waits."""
        return self._keys.find(np.ascontiguousarray(high), np.ascontiguousarray(low))

    def first_items(self) -> tuple[Numbers, Items]:
        """The numbers of all keys, and the first item of each."""
        return self._chains.first_items()

    def first_times(self) -> tuple[Numbers, Numbers]:
        """The numbers of all keys, and the time of the first item of each."""
        numbers, first = self._chains.first_items()
        return numbers, first["time"]

    def set_times(self, now: int) -> None:
        """Give all untimed items this time."""
        self._chains.set_times(now, self._timed)
        self._timed = self._chains.used

    def lowest_offsets(self) -> Mapping[int, int]:
        """By partition, the lowest offset that an item waits at."""
        return self._chains.lowest_offsets()

    def all_items(self) -> Items:
        return self._chains.all_items()

    def _compact(self) -> None:
        """Drop what is released, and the numbers of its keys."""
        live = self.all_items()
        timed = int(np.count_nonzero(self._chains.is_live()[: self._timed]))
        self._keys, self._chains = KeyTable(), ItemChains()
        self.add(live)
        self._timed = timed
