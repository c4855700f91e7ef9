"""The rows of several bundles as those of one: of each object the newest word counts.

A bundle says of objects that they are so (``PUT``), that they are gone (``DELETE``), or lists all that there are
(``LIST``): what is not in the list is gone, unless a later bundle brings it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]


class Said(IntEnum):
    """What a row says of its object."""

    PUT = 0
    DELETE = 1
    LIST = 2


@dataclass(frozen=True)
class FoldedRows:
    rows: Numbers
    """The rows that are left, by their number: at most one for each object."""
    said: npt.NDArray[np.int8]
    """What each of them says now. One that only lists its object says that it stays as it is."""
    prunes: bool
    """Whether objects that no row puts or lists are gone."""


def fold_rows(keys: Sequence[pa.Array], said: npt.NDArray[np.int8], ranks: Numbers, lists: Sequence[int]) -> FoldedRows:
    """``keys`` are the columns that tell objects apart; a higher rank is newer, and of one rank the later row.
    ``lists`` has the ranks of all lists, also of empty ones."""
    objects = object_numbers(keys, len(said))
    order = np.lexsort((np.arange(len(said)), ranks))
    count = int(objects.max()) + 1 if len(objects) else 0
    last_row = np.full(count, -1, np.int64)
    last_rank = np.full(count, -1, np.int64)
    touching = order[said[order] != Said.LIST]
    # Assigned in their order: the newest stays.
    last_row[objects[touching]] = touching
    last_rank[objects[touching]] = ranks[touching]
    alive = np.ones(count, np.bool_)
    for rank in lists:
        listed = np.zeros(count, np.bool_)
        listed[objects[(said == Said.LIST) & (ranks == rank)]] = True
        alive &= listed | (last_rank > rank)
    listing = order[said[order] == Said.LIST]
    listed_by = np.full(count, -1, np.int64)
    listed_by[objects[listing]] = listing
    rows = np.where(last_row >= 0, last_row, listed_by)
    touched = last_row >= 0
    final = np.where(touched, said[np.maximum(last_row, 0)] if len(said) else 0, Said.LIST).astype(np.int8)
    final[~alive] = Said.DELETE
    chosen = np.argsort(rows, kind="stable")
    return FoldedRows(rows[chosen], final[chosen], bool(lists))


def object_numbers(keys: Sequence[pa.Array], rows: int) -> Numbers:
    """A number for each row, from 0 on, the same for equal keys."""
    numbers = np.zeros(rows, np.int64)
    for key in keys:
        codes = pc.dictionary_encode(key, null_encoding="encode").indices.to_numpy(zero_copy_only=False)
        numbers = numbers * (int(codes.max(initial=0)) + 1) + codes
        _, numbers = np.unique(numbers, return_inverse=True)
    return numbers.astype(np.int64)
