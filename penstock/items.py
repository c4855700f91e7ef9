"""Items: the rows that steps make of a record, each with a number of its own.

Item 0 is the record itself. The rows that a step makes of it are its items 1, 2, 3 and so on; what a later step makes
of an item has that item's number in its high bits. A number depends on the record and the steps alone, not on what
becomes of its neighbours: so an item that failed can be found again, and replayed alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.outcome import place_key
from penstock.record import int64_array, int64_values

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_BITS = 31
"""Of a number, for each of its two levels. Rows that a third step makes of such an item share its number: they fail,
and are replayed, together."""


def number_items(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with new numbers where several share one; those stand together."""
    if rows.num_rows == 0:
        return rows
    items, places = int64_values(rows.column("item")), place_key(rows).to_numpy()
    first = np.append(True, (places[1:] != places[:-1]) | (items[1:] != items[:-1]))
    runs = np.cumsum(first) - 1
    several = np.bincount(runs)[runs] > 1
    numbers = np.arange(1, len(items) + 1) - np.flatnonzero(first)[runs]
    return with_items(rows, np.where(several & (items < 1 << _BITS), items << _BITS | numbers, items))


def with_items(rows: pa.RecordBatch, items: Numbers) -> pa.RecordBatch:
    """The rows, or failures, with these numbers."""
    at = rows.schema.get_field_index("item")
    return rows.set_column(at, rows.schema.field(at), int64_array(items))


def parents(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows, or places, under the numbers of the items that theirs were made of."""
    items = int64_values(rows.column("item"))
    return with_items(rows, items >> _BITS)


def outer_item(item: int) -> int:
    """The number of the item that a step has made of a record first, of which this one is or was made."""
    return item >> _BITS if item >= 1 << _BITS else item


def is_part_of(items: Numbers, others: Numbers) -> Flags:
    """Whether each item is the other one, or was made of it."""
    found: Flags = (items == others) | (items >> _BITS == others) | (others == 0)
    return found


@dataclass(frozen=True)
class ItemKeys:
    """One number for each item of some rows, or failures, by which they are compared."""

    places: Numbers
    items: Numbers

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> ItemKeys:
        return cls(place_key(rows).to_numpy(zero_copy_only=False), rows.column("item").to_numpy(zero_copy_only=False))

    def and_of(self, rows: pa.RecordBatch) -> ItemKeys:
        """These, and those of further rows."""
        more = ItemKeys.of(rows)
        return ItemKeys(np.concatenate([self.places, more.places]), np.concatenate([self.items, more.items]))

    def first(self) -> Flags:
        """Whether each is the first row of its item."""
        (keys,) = item_keys(self)
        found = np.zeros(len(keys), np.bool_)
        found[np.unique(keys, return_index=True)[1]] = True
        return found

    def within(self, others: ItemKeys) -> Flags:
        """Whether each is one of the others, or was made of one."""
        return self._are_in(others, self.items) | self.made_of(others)

    def made_of(self, others: ItemKeys) -> Flags:
        """Whether each was made of one of the others."""
        inner, outer = self.items >= 1 << _BITS, self.items != 0
        found: Flags = inner & self._are_in(others, self.items >> _BITS) | outer & self._are_in(others, 0 * self.items)
        return found

    def _are_in(self, others: ItemKeys, items: Numbers) -> Flags:
        mine, theirs = item_keys(ItemKeys(self.places, items), others)
        return np.isin(mine, theirs)


def item_keys(*found: ItemKeys) -> list[Numbers]:
    """One number per row of each, the same for the same item in all of them."""
    if not any(each.items.any() for each in found):
        return [each.places for each in found]
    _, records = np.unique(np.concatenate([each.places for each in found]), return_inverse=True)
    known, numbers = np.unique(np.concatenate([each.items for each in found]), return_inverse=True)
    ends = np.cumsum([len(each.places) for each in found])
    return np.split(records * len(known) + numbers, ends[:-1])
