"""Replays of single items: their record is run again, and what it became besides is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.items import Flags, Numbers, is_part_of, with_items
from penstock.outcome import place_key
from penstock.record import Header, int64_values, text_scalar

_REPLAY_ITEM = text_scalar(Header.REPLAY_ITEM.value)


@dataclass(frozen=True)
class ReplayedItems:
    """Records of which a single item is meant: their places, ascending, and the item of each."""

    _places: Numbers
    _items: Numbers

    @classmethod
    def of(cls, records: pa.RecordBatch) -> ReplayedItems | None:
        """``None`` if all of every record is meant, as nearly always."""
        headers = records.column("headers")
        if not pc.any(pc.equal(headers.keys, _REPLAY_ITEM)).as_py():
            return None
        named = pc.map_lookup(headers, Header.REPLAY_ITEM.value, "first")
        chosen = pc.is_valid(named)
        items = np.array([int(item) for item in named.filter(chosen).to_pylist()], np.int64)
        places, first = np.unique(place_key(records).filter(chosen).to_numpy(), return_index=True)
        return cls(places, items[first])

    def leave_out_neighbours(
        self, kept: pa.RecordBatch, failures: Sequence[pa.RecordBatch]
    ) -> tuple[pa.RecordBatch, list[pa.RecordBatch], int]:
        """The rows and failures that belong to the items that are meant, and how many of both do not. What is still on
        the way to such an item fails as the item that it would become."""
        wanted, items = self._wanted(kept), int64_values(kept.column("item"))
        left = kept.filter(pa.array(is_part_of(items, wanted) | is_part_of(wanted, items)))
        dropped = kept.num_rows - left.num_rows
        found = []
        for some in failures:
            wanted, items = self._wanted(some), int64_values(some.column("item"))
            meant = is_part_of(items, wanted) | is_part_of(wanted, items)
            named = with_items(some, np.where(is_part_of(wanted, items), wanted, items)).filter(pa.array(meant))
            dropped += some.num_rows - named.num_rows
            if named.num_rows:
                found.append(named)
        return left, found, dropped

    def unmade(self, rows: pa.RecordBatch) -> Flags:
        """Which rows, at the end of all steps, have not become the item that is meant."""
        return ~is_part_of(int64_values(rows.column("item")), self._wanted(rows))

    def among(self, places: Numbers, items: Numbers) -> Flags:
        """Which items, of records at these places (``place_key``), are meant, or parts of such."""
        return is_part_of(items, self._wanted_at(places))

    def as_wanted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows, under the numbers of the items that are meant."""
        return with_items(rows, self._wanted(rows))

    def _wanted(self, rows: pa.RecordBatch) -> Numbers:
        """The item that is meant of each row's record; 0 for all of it."""
        return self._wanted_at(place_key(rows).to_numpy())

    def _wanted_at(self, places: Numbers) -> Numbers:
        at = np.minimum(np.searchsorted(self._places, places), len(self._places) - 1)
        return np.where(self._places[at] == places, self._items[at], 0)
