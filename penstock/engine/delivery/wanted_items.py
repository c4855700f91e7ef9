"""Finds single items among the rows that steps make of fetched records, and knows which were not there."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.outcome import PLACES_PER_PARTITION, place_key
from penstock.record import int64_values

Numbers = npt.NDArray[np.int64]


class WantedItems:
    """``places``: which items are wanted, each once (``PLACE_SCHEMA``)."""

    def __init__(self, places: pa.RecordBatch) -> None:
        self.places = places
        partitions, offsets, self._items = (column.to_numpy() for column in self.places.columns)
        records = partitions.astype(np.int64) * PLACES_PER_PARTITION + offsets
        self._records, self._record_of = np.unique(records, return_inverse=True)
        self._numbers, codes = self._code_items()
        self._rows = np.argsort(codes)
        """Which of the places has each code, in the order of the codes."""
        self._codes = codes[self._rows]
        self._taken = np.zeros(len(codes), np.bool_)
        self._fetched = np.zeros(len(self._records), np.bool_)

    def take(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Of rows, or failures, those that are wanted."""
        if rows.num_rows == 0:
            return rows
        records, wanted = _find(self._records, place_key(rows).to_numpy())
        items = int64_values(rows.column("item"))
        if self._numbers is None:
            wanted &= items == 0
            places = records
        else:
            numbers, numbered = _find(self._numbers, items)
            places, found = _find(self._codes, records * len(self._numbers) + numbers)
            wanted &= numbered & found
        self._taken[self._rows[places[wanted]]] = True
        return rows if wanted.all() else rows.filter(pa.array(wanted))

    def note_fetched(self, records: pa.RecordBatch) -> None:
        """These records were there."""
        places, wanted = _find(self._records, place_key(records).to_numpy())
        self._fetched[places[wanted]] = True

    def not_taken(self) -> pa.RecordBatch:
        """The items whose records were there without them."""
        return self.places.filter(pa.array(self._fetched[self._record_of] & ~self._taken))

    def not_fetched(self) -> pa.RecordBatch:
        """The items whose records were not there."""
        return self.places.filter(pa.array(~self._fetched[self._record_of]))

    def _code_items(self) -> tuple[Numbers | None, Numbers]:
        """The numbers that items have, in order, and a code of each item, of its record and its number. Where every
        item is a whole record, which is mostly so, the record is enough."""
        if not self._items.any():
            return None, self._record_of
        numbers, in_records = np.unique(self._items, return_inverse=True)
        return numbers, self._record_of * len(numbers) + in_records


def _find(ascending: Numbers, values: Numbers) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """The place of each value, and whether it is there."""
    places = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return places, ascending[places] == values
