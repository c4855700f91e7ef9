"""The traces that a shard knows, each in one of four homes, in the order of use: two in which traces wait, and one for
each decision.

A table of rows with a hash index over their keys; every home is a list through its rows, oldest first. All moves are
small compiled functions, so that a loop over many traces makes them one after the other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.compiled import borrowing, compiled

TRACE = np.dtype(
    [
        ("high", "<u8"),
        ("low", "<u8"),
        ("count", "<i8"),
        ("bytes", "<i8"),
        ("start", "<u8"),
        ("end", "<u8"),
        ("arrived", "<i8"),
        ("oldest", "<i8"),
        ("kept_mask", "<u8"),
        ("threshold", "<u8"),
        ("weight", "<f8"),
        ("policy", "<i4"),
        ("home", "<i4"),
        ("older", "<i4"),
        ("newer", "<i4"),
    ]
)
"""What is known of a trace. Of one that waits: how many spans came and their bytes, earliest start and latest end (ns;
0 is none), when the first came (µs), the first stamp in the log that an item of it waits at, conditions and threshold
for sticky policies, and the policy that made it low. Of one that is decided: the policy and the weight; the rest is 0.
``older`` and ``newer`` are its neighbours in its home."""

NOWHERE, PRIMARY, SECONDARY, SAMPLED_HOME, NOT_SAMPLED_HOME = range(5)
HOMES = 5
"""Homes, and those that are not in use."""

OLDEST, NEWEST, SIZE, LIMIT, BYTES = range(5)
"""Columns of ``Homes.ends``."""

Rows = npt.NDArray[np.void]
"""Rows of ``TRACE``."""
Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_LEAST_TRACES = 1 << 8
_NONE = -1
_EMPTY = np.uint64(2**64 - 1)
_SLOT = np.uint64(2**32 - 1)
_TAG_BITS = np.uint64(32)


class Homes(NamedTuple):
    """The table as compiled code sees it; valid until it grows."""

    traces: Rows
    buckets: Words
    """Per bucket 32 bits of the key, which say where it belongs, and the number of its trace."""
    ends: Numbers
    """Per home its oldest and newest trace, how many it has, how many it may have, and the bytes that wait there. Rows
    that are not in use are a list, too."""
    used: Numbers
    """When each trace became the newest of its home: a number that is higher than those before, over all homes."""
    clock: Numbers
    """The last such number."""


class TraceTable:
    def __init__(self) -> None:
        self.ends: Numbers = np.zeros((HOMES, 5), np.int64)
        self._clock: Numbers = np.zeros(1, np.int64)
        self.clear()

    def clear(self) -> None:
        """Forget all traces."""
        self._traces: Rows = np.zeros(0, TRACE)
        self._buckets: Words = np.full(0, _EMPTY, np.uint64)
        self._used: Numbers = np.zeros(0, np.int64)
        self.ends[:, (OLDEST, NEWEST)] = _NONE
        self.ends[:, (SIZE, BYTES)] = 0
        self.make_room(1)

    @property
    def homes(self) -> Homes:
        return Homes(self._traces, self._buckets, self.ends, self._used, self._clock)

    @property
    def capacity(self) -> int:
        """Traces have numbers below this."""
        return len(self._traces)

    @property
    def nbytes(self) -> int:
        return self._traces.nbytes + self._buckets.nbytes + self._used.nbytes

    @property
    def waiting_bytes(self) -> int:
        return int(self.ends[:, BYTES].sum())

    def __len__(self) -> int:
        return int(self.ends[PRIMARY:, SIZE].sum())

    def size(self, home: int) -> int:
        return int(self.ends[home, SIZE])

    def make_room(self, more: int) -> None:
        """For so many new traces."""
        needed = len(self) + more
        if needed <= self.capacity:
            return
        size = max(_LEAST_TRACES, 2 * self.capacity, needed)
        old = self.capacity
        self._traces = np.concatenate([self._traces, np.zeros(size - old, TRACE)])
        self._used = np.concatenate([self._used, np.zeros(size - old, np.int64)])
        self._buckets = np.full(1 << (2 * size - 1).bit_length(), _EMPTY, np.uint64)
        _index_all(self.homes, old)

    def rows_of(self, *homes: int) -> Rows:
        """The traces of homes, from the one on that was not used for the longest time, whatever home it is in."""
        numbers = np.concatenate([_walk(self.homes, home) for home in homes])
        rows: Rows = self._traces[numbers[np.argsort(self._used[numbers], kind="stable")]]
        return rows

    def rows_with(self, high: Words, low: Words) -> Rows:
        """What is known of the traces with these keys: all 0, and ``NOWHERE``, of one that is not known."""
        numbers = np.empty(len(high), np.int64)
        _find_all(self.homes, high, low, numbers)
        rows: Rows = self._traces[numbers]
        rows[numbers == _NONE] = np.zeros(1, TRACE)
        return rows


@borrowing
def find_trace(homes: Homes, high: np.uint64, low: np.uint64) -> int:
    """The number of a trace, or -1."""
    buckets, mask = homes.buckets, np.uint64(len(homes.buckets) - 1)
    tag = low & _SLOT
    bucket = tag & mask
    while buckets[bucket] != _EMPTY:
        entry = buckets[bucket]
        if entry >> _TAG_BITS == tag:
            number = int(np.int64(entry & _SLOT))
            if homes.traces[number]["low"] == low and homes.traces[number]["high"] == high:
                return number
        bucket = (bucket + np.uint64(1)) & mask
    return _NONE


@borrowing
def _find_all(homes: Homes, high: Words, low: Words, numbers: Numbers) -> None:
    for row in range(len(high)):
        numbers[row] = find_trace(homes, high[row], low[row])


@borrowing
def new_trace(homes: Homes, high: np.uint64, low: np.uint64) -> int:
    """A number for a key that has none. There must be room."""
    number = int(homes.ends[NOWHERE, OLDEST])
    trace = homes.traces[number]
    homes.ends[NOWHERE, OLDEST] = trace["newer"]
    _clear(trace)
    trace["high"] = high
    trace["low"] = low
    _index(homes.buckets, low, number)
    return number


@borrowing
def move_to_newest(homes: Homes, number: int, home: int) -> None:
    """Make a trace, wherever it is, the newest of a home."""
    take_out(homes, number)
    put_newest(homes, number, home)


@borrowing
def settle(homes: Homes, number: int, home: int, policy: int, weight: float) -> None:
    """Make a trace the newest of those of a decision. Nothing else is known of it then."""
    take_out(homes, number)
    trace = homes.traces[number]
    _clear(trace)
    trace["policy"] = policy
    trace["weight"] = weight
    put_newest(homes, number, home)


@borrowing
def put_newest(homes: Homes, number: int, home: int) -> None:
    """Make a trace that is in no home the newest of one."""
    traces, ends = homes.traces, homes.ends
    trace = traces[number]
    newest = ends[home, NEWEST]
    trace["home"] = home
    trace["older"] = newest
    trace["newer"] = _NONE
    if newest == _NONE:
        ends[home, OLDEST] = number
    else:
        traces[newest]["newer"] = number
    ends[home, NEWEST] = number
    ends[home, SIZE] += 1
    ends[home, BYTES] += trace["bytes"]
    homes.clock[0] += 1
    homes.used[number] = homes.clock[0]


@borrowing
def take_out(homes: Homes, number: int) -> None:
    """Take a trace out of its home, if it is in one. What is known of it may change only then."""
    traces, ends = homes.traces, homes.ends
    trace = traces[number]
    home = trace["home"]
    if home == NOWHERE:
        return
    older, newer = trace["older"], trace["newer"]
    if older == _NONE:
        ends[home, OLDEST] = newer
    else:
        traces[older]["newer"] = newer
    if newer == _NONE:
        ends[home, NEWEST] = older
    else:
        traces[newer]["older"] = older
    ends[home, SIZE] -= 1
    ends[home, BYTES] -= trace["bytes"]
    trace["home"] = NOWHERE


@borrowing
def forget(homes: Homes, number: int) -> None:
    """Remove a trace that is decided."""
    take_out(homes, number)
    _unindex(homes.buckets, homes.traces[number]["low"], number)
    homes.traces[number]["newer"] = homes.ends[NOWHERE, OLDEST]
    homes.ends[NOWHERE, OLDEST] = number


@borrowing
def _clear(trace: np.void) -> None:
    trace["count"] = 0
    trace["bytes"] = 0
    trace["start"] = 0
    trace["end"] = 0
    trace["arrived"] = 0
    trace["oldest"] = 0
    trace["kept_mask"] = 0
    trace["threshold"] = 0
    trace["weight"] = 0.0
    trace["policy"] = 0


@borrowing
def _index(buckets: Words, low: np.uint64, number: int) -> None:
    mask = np.uint64(len(buckets) - 1)
    tag = low & _SLOT
    bucket = tag & mask
    while buckets[bucket] != _EMPTY:
        bucket = (bucket + np.uint64(1)) & mask
    buckets[bucket] = tag << _TAG_BITS | np.uint64(number)


@borrowing
def _unindex(buckets: Words, low: np.uint64, number: int) -> None:
    """Empty a trace's bucket, and move up what stands behind it only because it was not empty."""
    mask = np.uint64(len(buckets) - 1)
    tag = low & _SLOT
    sought = tag << _TAG_BITS | np.uint64(number)
    hole = tag & mask
    while buckets[hole] != sought:
        hole = (hole + np.uint64(1)) & mask
    bucket = (hole + np.uint64(1)) & mask
    while buckets[bucket] != _EMPTY:
        belongs = buckets[bucket] >> _TAG_BITS & mask
        if (bucket - belongs) & mask >= (bucket - hole) & mask:
            buckets[hole] = buckets[bucket]
            hole = bucket
        bucket = (bucket + np.uint64(1)) & mask
    buckets[hole] = _EMPTY


@borrowing
def _index_all(homes: Homes, old: int) -> None:
    """After growing: index the traces that there are, and list the new rows as not in use."""
    for home in range(PRIMARY, HOMES):
        number = homes.ends[home, OLDEST]
        while number != _NONE:
            _index(homes.buckets, homes.traces[number]["low"], number)
            number = homes.traces[number]["newer"]
    for number in range(len(homes.traces) - 1, old - 1, -1):
        homes.traces[number]["newer"] = homes.ends[NOWHERE, OLDEST]
        homes.ends[NOWHERE, OLDEST] = number


@compiled
def _walk(homes: Homes, home: int) -> Numbers:
    numbers = np.empty(homes.ends[home, SIZE], np.int64)
    number = homes.ends[home, OLDEST]
    for row in range(len(numbers)):
        numbers[row] = number
        number = homes.traces[number]["newer"]
    return numbers
