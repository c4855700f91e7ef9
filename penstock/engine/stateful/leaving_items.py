"""What leaves a holding step, found again by the records that it is in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.holding.item import Items
from penstock.outcome import PLACES_PER_PARTITION, place_key


class LeavingItems:
    """Items by place and number."""

    def __init__(self, items: Items) -> None:
        records = items["partition"].astype(np.int64) * PLACES_PER_PARTITION + items["offset"]
        order = np.lexsort((items["item"], records))
        self.items = items.take(order)
        self._records = records[order]

    def of(self, rows: pa.RecordBatch) -> Items:
        """Those of some rows, which are in the order of the log."""
        if rows.num_rows == 0:
            return self.items[:0]
        places = place_key(rows)
        first = np.searchsorted(self._records, places[0].as_py(), "left")
        last = np.searchsorted(self._records, places[-1].as_py(), "right")
        return self.items[first:last]
