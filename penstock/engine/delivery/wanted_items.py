"""Finds single items among the rows that steps make of fetched records, and knows which were not there."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.outcome import place_key
from penstock.record import int64_values

Numbers = npt.NDArray[np.int64]


class WantedItems:
    """``places``: which items are wanted, each once (``PLACE_SCHEMA``). They are kept in the order of the log."""

    def __init__(self, places: pa.RecordBatch) -> None:
        records = place_key(places).to_numpy()
        if np.any(records[1:] < records[:-1]):
            order = np.argsort(records, kind="stable")
            places, records = places.take(pa.array(order)), records[order]
        self.places = places
        self._records = records
        items = int64_values(places.column("item"))
        self._coded = _CodedItems(records, items) if items.any() else None
        """Not needed where every item is a whole record, which is mostly so."""
        self._taken = np.zeros(len(records), np.bool_)
        self._fetched = np.zeros(len(records), np.bool_)

    def take(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Of rows, or failures, those that are wanted."""
        if rows.num_rows == 0:
            return rows
        records, items = place_key(rows).to_numpy(), int64_values(rows.column("item"))
        if self._coded is None:
            places, wanted = _find(self._records, records)
            wanted &= items == 0
        else:
            places, wanted = self._coded.find(records, items)
        self._taken[places[wanted]] = True
        return rows if wanted.all() else rows.filter(pa.array(wanted))

    def leave(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Of rows those that are not wanted themselves, but of which wanted items may be made."""
        if self._coded is None or rows.num_rows == 0:
            return rows.slice(0, 0)
        _, wanted = self._coded.find(place_key(rows).to_numpy(), int64_values(rows.column("item")))
        return rows.filter(pa.array(~wanted))

    def note_fetched(self, records: pa.RecordBatch) -> None:
        """These records were there."""
        fetched = place_key(records).to_numpy()
        # Both are in the order of the log.
        first = np.searchsorted(self._records, fetched[0], "left")
        last = np.searchsorted(self._records, fetched[-1], "right")
        self._fetched[first:last] |= _find(fetched, self._records[first:last])[1]

    def not_taken(self) -> pa.RecordBatch:
        """The items whose records were there without them."""
        return self.places.filter(pa.array(self._fetched & ~self._taken))

    def not_fetched(self) -> pa.RecordBatch:
        """The items whose records were not there."""
        return self.places.filter(pa.array(~self._fetched))


class _CodedItems:
    """Items by a number that is made of their record and their number in it."""

    def __init__(self, records: Numbers, items: Numbers) -> None:
        self._records, of = np.unique(records, return_inverse=True)
        self._numbers, numbers = np.unique(items, return_inverse=True)
        codes = of * len(self._numbers) + numbers
        self._order = np.argsort(codes)
        self._codes = codes[self._order]

    def find(self, records: Numbers, items: Numbers) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """The place of each item, and whether it is there."""
        known, there = _find(self._records, records)
        numbers, numbered = _find(self._numbers, items)
        places, found = _find(self._codes, known * len(self._numbers) + numbers)
        return self._order[places], there & numbered & found


def _find(ascending: Numbers, values: Numbers) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """The place of each value, and whether it is there."""
    places = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return places, ascending[places] == values
