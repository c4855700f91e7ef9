"""Numbers for 128-bit keys: small ones, given again once their key is removed. Columns beside the table stay small.

A hash table with open addressing in plain arrays. All operations take whole batches of keys.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt

from penstock.compiled import borrowing

Words = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]

LEAST_BUCKETS = 1 << 10
_EMPTY, _REMOVED = -1, -2


class KeyTable:
    """``add`` gives a key its number, the same one until it is removed. Numbers are below ``size``."""

    def __init__(self) -> None:
        self.size = 0
        self.high: Words = np.empty(LEAST_BUCKETS, np.uint64)
        self.low: Words = np.empty(LEAST_BUCKETS, np.uint64)
        self._buckets: Numbers = np.full(LEAST_BUCKETS, _EMPTY, np.int64)
        self._free: Numbers = np.empty(0, np.int64)
        self._removed = 0

    @classmethod
    def of(cls, high: Words, low: Words) -> Self:
        """A table in which these keys, all different, have the numbers 0, 1, 2 ..."""
        table = cls()
        table.add(high, low)
        return table

    def __len__(self) -> int:
        return self.size - len(self._free)

    def add(self, high: Words, low: Words) -> tuple[Numbers, int]:
        """The number of each key, which is new if it has none; and how many of them are new."""
        self._make_room(len(high))
        numbers = np.empty(len(high), np.int64)
        new, self.size = _add(high, low, self._buckets, self.high, self.low, self._free, self.size, numbers)
        self._free = self._free[: len(self._free) - min(new, len(self._free))]
        return numbers, new

    def find(self, high: Words, low: Words) -> Numbers:
        """The number of each key; -1 for one that has none."""
        numbers = np.empty(len(high), np.int64)
        _find(high, low, self._buckets, self.high, self.low, numbers)
        return numbers

    def remove(self, numbers: Numbers) -> None:
        """Forget the keys of these numbers, which are different and in use."""
        _remove(numbers, self._buckets, self.high, self.low)
        self._removed += len(numbers)
        self._free = np.concatenate([self._free, numbers])

    def _make_room(self, more: int) -> None:
        needed = len(self) + more
        if self.size + more > len(self.high):
            length = max(2 * len(self.high), self.size + more)
            self.high, self.low = (np.concatenate([old, np.empty(length - len(old), np.uint64)]) for old in self._keys)
        # Probing gets slow when fewer than half of the buckets are empty.
        if 2 * (needed + self._removed) > len(self._buckets):
            buckets = max(LEAST_BUCKETS, 1 << (4 * needed - 1).bit_length())
            self._buckets = np.full(buckets, _EMPTY, np.int64)
            used = np.ones(self.size, np.bool_)
            used[self._free] = False
            _insert_all(np.flatnonzero(used), self._buckets, self.high, self.low)
            self._removed = 0

    @property
    def _keys(self) -> tuple[Words, Words]:
        return self.high, self.low


@borrowing
def _add(
    high: Words, low: Words, buckets: Numbers, highs: Words, lows: Words, free: Numbers, size: int, numbers: Numbers
) -> tuple[int, int]:
    mask = np.uint64(len(buckets) - 1)
    new = 0
    left = len(free)
    for row in range(len(high)):
        bucket = low[row] & mask
        place = np.int64(-1)
        while True:
            number = buckets[bucket]
            if number == _EMPTY:
                break
            if number == _REMOVED:
                if place < 0:
                    place = np.int64(bucket)
            elif highs[number] == high[row] and lows[number] == low[row]:
                break
            bucket = (bucket + np.uint64(1)) & mask
        if number == _EMPTY:
            if left > 0:
                left -= 1
                number = free[left]
            else:
                number = np.int64(size)
                size += 1
            highs[number] = high[row]
            lows[number] = low[row]
            buckets[place if place >= 0 else np.int64(bucket)] = number
            new += 1
        numbers[row] = number
    return new, size


@borrowing
def _find(high: Words, low: Words, buckets: Numbers, highs: Words, lows: Words, numbers: Numbers) -> None:
    mask = np.uint64(len(buckets) - 1)
    for row in range(len(high)):
        bucket = low[row] & mask
        number = buckets[bucket]
        while number != _EMPTY and (number == _REMOVED or highs[number] != high[row] or lows[number] != low[row]):
            bucket = (bucket + np.uint64(1)) & mask
            number = buckets[bucket]
        numbers[row] = number


@borrowing
def _remove(numbers: Numbers, buckets: Numbers, highs: Words, lows: Words) -> None:
    mask = np.uint64(len(buckets) - 1)
    for row in range(len(numbers)):
        bucket = lows[numbers[row]] & mask
        while buckets[bucket] != numbers[row]:
            bucket = (bucket + np.uint64(1)) & mask
        buckets[bucket] = _REMOVED


@borrowing
def _insert_all(numbers: Numbers, buckets: Numbers, highs: Words, lows: Words) -> None:
    mask = np.uint64(len(buckets) - 1)
    for row in range(len(numbers)):
        bucket = lows[numbers[row]] & mask
        while buckets[bucket] != _EMPTY:
            bucket = (bucket + np.uint64(1)) & mask
        buckets[bucket] = numbers[row]
