"""The log records that wait for a decision on their traces.

They are no part of a trace that waits: they count in no cache, give it no place in the order of use, and take none from
it. Their own limit is on the traces that logs wait for. Past it logs go of traces of which no span waits, those first
whose first log came first.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.holding.held_items import Delta, HeldItems
from penstock.holding.item import ITEM, KEY, Items, Keys, sorted_by_log
from penstock.holding.key_table import KeyTable
from penstock.holding.packed_rows import pack_rows, unpack_rows
from penstock.sampling.trace_homes import NOWHERE, TRACE, Rows

ITEMS_PER_BLOB = 1 << 17

_HEAD = struct.Struct("<Q")
"""How many keys went."""

Waits = Callable[[Items], npt.NDArray[np.bool_]]
"""Whether a span waits of the trace of each of these items."""


class Decisions:
    """What is decided on traces, by their keys."""

    def __init__(self, rows: Rows) -> None:
        """``rows``: traces as they were decided, and perhaps some that are not. The last row of a trace counts."""
        rows = rows[rows["home"] != NOWHERE]
        self._table = KeyTable()
        numbers, _ = self._table.add(*_words(rows))
        self._rows = np.zeros(self._table.size + 1, TRACE)
        self._rows[numbers] = rows

    def of(self, items: Items) -> Rows:
        """The decision on the trace of each item; ``NOWHERE`` where there is none."""
        # There is one more row for those that are not found, whose number is -1.
        found: Rows = self._rows[self._table.find(*_words(items))]
        return found

    @property
    def keys(self) -> Rows:
        """Rows with the keys of all of them."""
        return self._rows[:-1]


@dataclass(frozen=True)
class Followed:
    """What became of log records: of those that waited, and of those that came."""

    waited: Items
    came: Items

    def __len__(self) -> int:
        return len(self.waited) + len(self.came)

    @property
    def items(self) -> Items:
        return np.concatenate([self.waited, self.came])


class WaitingLogs:
    """``limit``: how many traces logs may wait for. It is more than the number of traces that ever wait themselves."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held = HeldItems()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def traces(self) -> int:
        """How many traces logs wait for."""
        return self._held.keys

    def take(self, decisions: Decisions, came: Items) -> tuple[Followed, Items]:
        """Logs of traces that are decided, and the others of those that came."""
        decided = decisions.of(came)["home"] != NOWHERE
        _, waited = self._held.release(self._held.find(decisions.keys["high"], decisions.keys["low"]))
        return Followed(waited, came[decided]), came[~decided]

    def take_up_to(self, stamp: int, came: Items) -> tuple[Followed, Items]:
        """Logs that stand at or before a point in the order of the log, with all that waited with them; and the others
        of those that came."""
        old = came["order"] <= stamp
        _, waited = self._held.release(self._held.find_up_to(stamp))
        return Followed(waited, came[old]), came[~old]

    def add(self, came: Items, waits: Waits) -> tuple[Followed, Items]:
        """Let logs wait, in the order of the log. Those for which there is no room go; and those that came and stay."""
        mark = self._held.arrived
        self._held.add(came)
        waited, fresh = self._held.release(self._overflowing(waits), since=mark)
        gone = KeyTable.of(*_words(_once(fresh)))
        return Followed(waited, fresh), came[gone.find(*_words(came)) < 0]

    def take_all(self) -> Items:
        """All that waits."""
        _, waited = self._held.release(self._held.first_items()[0])
        rows: Items = waited[sorted_by_log(waited)]
        return rows

    def lowest_offsets(self) -> Mapping[int, int]:
        return self._held.lowest_offsets()

    def apply(self, blob: bytes) -> None:
        (size,) = _HEAD.unpack_from(blob)
        keys, items = blob[_HEAD.size : _HEAD.size + size], blob[_HEAD.size + size :]
        self._held.apply(Delta(unpack_rows([keys], KEY), unpack_rows([items], ITEM)))

    def snapshot(self) -> Iterator[bytes]:
        """Blobs that make the same logs wait."""
        waiting = self._held.all_items()
        for at in range(0, len(waiting), ITEMS_PER_BLOB):
            yield encode_change(np.empty(0, ITEM), waiting[at : at + ITEMS_PER_BLOB])

    def _overflowing(self, waits: Waits) -> npt.NDArray[np.int64]:
        if self._held.keys <= self.limit:
            return np.empty(0, np.int64)
        # Some more than must be: looking for them takes as long as there are traces.
        most = self._held.keys - self.limit + self.limit // 8
        numbers, first = self._held.first_items()
        alone = np.flatnonzero(~waits(first))
        return numbers[alone[sorted_by_log(first[alone])][:most]]


def encode_change(gone: Items, added: Items) -> bytes:
    """What a batch has changed: of the traces of which logs went that had waited, none waits but those that were
    added."""
    keys = pack_rows(_once(gone))
    return _HEAD.pack(len(keys)) + keys + pack_rows(added)


def _once(items: Items) -> Keys:
    """The keys of items, each once."""
    keys = np.empty(len(items), KEY)
    keys["high"], keys["low"] = items["high"], items["low"]
    return np.unique(keys)


def _words(rows: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    return np.ascontiguousarray(rows["high"]), np.ascontiguousarray(rows["low"])
