"""Finds single items among the rows that steps make of fetched records, and knows which were not there."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.outcome import PLACE_SCHEMA, PLACES_PER_PARTITION, place_key
from penstock.record import int64_values

Numbers = npt.NDArray[np.int64]


class WantedItems:
    """``places``: which items are wanted, each once (``PLACE_SCHEMA``)."""

    def __init__(self, places: pa.RecordBatch) -> None:
        self.places = pa.RecordBatch.from_arrays(
            [places.column(field.name).cast(field.type) for field in PLACE_SCHEMA], schema=PLACE_SCHEMA
        )
        partitions, offsets, items = (column.to_numpy() for column in self.places.columns)
        self._places: Numbers = partitions.astype(np.int64) * PLACES_PER_PARTITION + offsets
        self._records, records = np.unique(self._places, return_inverse=True)
        self._items, in_records = np.unique(items, return_inverse=True)
        codes = records * len(self._items) + in_records
        self._order = np.argsort(codes)
        self._codes = codes[self._order]
        self._taken = np.zeros(len(codes), np.bool_)
        self._fetched = np.zeros(len(codes), np.bool_)

    def take(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Of rows, or failures, those that are wanted."""
        if rows.num_rows == 0:
            return rows
        records, known = _find(self._records, place_key(rows).to_numpy())
        in_records, numbered = _find(self._items, int64_values(rows.column("item")))
        places, found = _find(self._codes, records * len(self._items) + in_records)
        wanted = known & numbered & found
        self._taken[self._order[places[wanted]]] = True
        return rows if wanted.all() else rows.filter(pa.array(wanted))

    def note_fetched(self, records: pa.RecordBatch) -> None:
        """These records were there."""
        self._fetched |= _find(place_key(records).to_numpy(), self._places)[1]

    def not_taken(self) -> pa.RecordBatch:
        """The items whose records were there without them."""
        return self.places.filter(pa.array(self._fetched & ~self._taken))

    def not_fetched(self) -> pa.RecordBatch:
        """The items whose records were not there."""
        return self.places.filter(pa.array(~self._fetched))


def _find(ascending: Numbers, values: Numbers) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """The place of each value, and whether it is there."""
    places = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return places, ascending[places] == values
