"""Which keys were seen in the last so many seconds of log time, which is what the timestamps of records say.

The state is a row of blobs, one per batch, each with the keys that the batch has seen and when. From time to time keys
that are too old to matter are forgotten, and blobs that have no others are dropped. The blobs say when that was: what
is restored from them is the same, to the last key, so a replayed batch is decided as it was.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.compiled import compiled
from penstock.holding.decision import Decision, StateChange
from penstock.holding.item import Items, sorted_by_log
from penstock.holding.key_table import KeyTable, Numbers
from penstock.holding.packed_rows import pack_rows, unpack_rows

MOST_BLOBS = 1000
"""With more, everything is written anew."""
FEW_BLOBS = 32

_SEEN = np.dtype([("high", "<u8"), ("low", "<u8"), ("time", "<i8")])
_HEAD = struct.Struct("<qq?")
"""The time of the newest record, the time at which keys were last forgotten, and whether that was with this blob."""
_LONG_AGO = -(2**62)


class _Times(NamedTuple):
    """The times in a blob."""

    oldest: int
    newest: int


class SeenKeys:
    """``window`` in µs: a record is a duplicate if the last one of its key is not further away in time than that."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._keys = KeyTable()
        self._times: Numbers = np.empty(0, np.int64)
        self._now = _LONG_AGO
        """The time of the newest record in the order of the log: a clock that was set back counts at once."""
        self._forgotten_at = _LONG_AGO
        self._blobs: deque[_Times] = deque()

    def apply(self, blob: bytes) -> None:
        self._now, self._forgotten_at, forgets = _HEAD.unpack_from(blob)
        rows = unpack_rows([blob[_HEAD.size :]], _SEEN)
        numbers = self._numbers(rows)
        self._times[numbers] = rows["time"]
        if forgets:
            self._forget()
        self._blobs.append(_times(rows))

    def drop(self, blobs: int) -> None:
        for _ in range(blobs):
            self._blobs.popleft()

    def __len__(self) -> int:
        return len(self._keys)

    def decide(
        self, items: Items, ticks: Sequence[int] = (), releases: Sequence[int] = (), commands: Items | None = None
    ) -> Decision:
        """The first item of each key passes; one that comes within the window after another of its key is skipped.
        Nothing waits, so ticks and releases change nothing."""
        if len(items) == 0:
            return Decision(items, 0)
        in_order = items.take(sorted_by_log(items))
        numbers = self._numbers(in_order)
        fresh = _see(numbers, np.ascontiguousarray(in_order["time"]), self._times, self._window)
        self._now = int(in_order["time"][-1])
        passed = int(fresh.sum())
        change = self._change(np.unique(numbers))
        return Decision(in_order.compress(fresh), passed, skipped=len(fresh) - passed, change=change)

    def _change(self, touched: Numbers) -> StateChange:
        added = self._rows(touched)
        drop = 0
        # Forgetting looks at all keys, so it is not done at every batch.
        forgets = abs(self._now - self._forgotten_at) >= self._window // 8 or len(self._blobs) >= MOST_BLOBS
        if forgets:
            self._forget()
            while self._blobs and self._is_over(self._blobs[0]):
                self._blobs.popleft()
                drop += 1
        if len(self._blobs) < MOST_BLOBS:
            return StateChange([self._blob(added, forgets)], drop)
        drop += len(self._blobs)
        self._blobs.clear()
        all_rows = self._rows(np.flatnonzero(self._times > _LONG_AGO))
        all_rows.sort(order="time")
        pieces = [piece for piece in np.array_split(all_rows, FEW_BLOBS) if len(piece)]
        return StateChange([self._blob(piece, forgets=False) for piece in pieces], drop)

    def _blob(self, rows: npt.NDArray[np.void], forgets: bool) -> bytes:
        self._blobs.append(_times(rows))
        return _HEAD.pack(self._now, self._forgotten_at, forgets) + pack_rows(rows)

    def _is_over(self, blob: _Times) -> bool:
        return blob.newest < self._now - self._window or blob.oldest > self._now + self._window

    def _forget(self) -> None:
        """Remove keys that are too far away in time to matter."""
        self._forgotten_at = self._now
        far = (np.abs(self._times - self._now) > self._window) & (self._times > _LONG_AGO)
        self._times[far] = _LONG_AGO
        self._keys.remove(np.flatnonzero(far))

    def _rows(self, numbers: Numbers) -> npt.NDArray[np.void]:
        rows = np.empty(len(numbers), _SEEN)
        rows["high"], rows["low"] = self._keys.high[numbers], self._keys.low[numbers]
        rows["time"] = self._times[numbers]
        return rows

    def _numbers(self, rows: npt.NDArray[np.void]) -> Numbers:
        high, low = (np.ascontiguousarray(rows[name]) for name in ("high", "low"))
        numbers, _ = self._keys.add(high, low)
        if self._keys.size > len(self._times):
            more = np.full(max(len(self._times), self._keys.size - len(self._times)), _LONG_AGO, np.int64)
            self._times = np.concatenate([self._times, more])
        return numbers


def _times(rows: npt.NDArray[np.void]) -> _Times:
    return _Times(int(rows["time"].min()), int(rows["time"].max()))


@compiled
def _see(numbers: Numbers, times: Numbers, last: Numbers, window: int) -> npt.NDArray[np.bool_]:
    fresh = np.empty(len(numbers), np.bool_)
    for row in range(len(numbers)):
        fresh[row] = abs(times[row] - last[numbers[row]]) > window
        last[numbers[row]] = times[row]
    return fresh
