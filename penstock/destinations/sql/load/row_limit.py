"""How large a row an engine can store, and which values must move to ``_unmapped`` so that a row fits.

An engine with pages (PostgreSQL: 8 KB) keeps a row in one page. It stores long text elsewhere, with a pointer in the
row, but not short text and numbers, so it refuses a row of very many columns. Sizes here are what a row takes at least,
column by column in the table's order, exact up to the few bytes that an engine saves by packing numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.flatten.values.to_json import as_text

Sizes = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RowLimit:
    """``room`` is what the values of a row may take together, without ``_unmapped``."""

    room: int
    short: int
    """The longest text, in bytes, that always stays in the row, after one byte for its length."""
    long: int
    """The most bytes that a longer text takes in the row."""
    fixed: Mapping[str, tuple[int, int]]
    """By type: the size of every value in bytes, and its alignment."""
    widest: int
    """The most bytes that a value of any other type takes."""

    def may_exceed(self, types: Sequence[str]) -> bool:
        """Whether a row with values in all of these columns could be too large."""
        return sum(sum(self.fixed.get(kind, (self.widest, 1))) for kind in types) > self.room

    def excess(self, columns: Sequence[tuple[str, pa.Array]], turns: Sequence[int | None]) -> list[Bools] | None:
        """Per column, the rows whose value must move: lowest turn first and widest first within a turn, never from a
        column without a turn. ``columns`` are types and values in the table's order. None: every row fits."""
        if not columns or not self.may_exceed([kind for kind, _ in columns]):
            return None
        sizes = np.stack([self._sizes(kind, values) for kind, values in columns])
        steps = [self.fixed.get(kind, (0, 1))[1] for kind, _ in columns]
        over = np.flatnonzero(_stored(sizes, steps) > self.room)
        if not len(over):
            return None
        some = sizes[:, over]
        movable = np.where(np.array([turn is not None for turn in turns])[:, None], some, 0)
        widths = np.stack([_width(values) for _, values in columns])[:, over]
        turn_of = np.broadcast_to(np.array([turn or 0 for turn in turns])[:, None], widths.shape)
        order = np.lexsort((-widths, turn_of), axis=0)
        in_turn = np.take_along_axis(movable, order, axis=0)
        aside = np.zeros(some.shape, np.bool_)
        while True:
            too_much = _stored(np.where(aside, 0, some), steps) - self.room
            left = np.where(np.take_along_axis(aside, order, axis=0), 0, in_turn)
            # As many values of each row as it takes; padding may require another round.
            chosen = (np.cumsum(left, axis=0) - left < too_much) & (left > 0)
            if not chosen.any():
                break
            np.put_along_axis(aside, order, np.take_along_axis(aside, order, axis=0) | chosen, axis=0)
        found = np.zeros(sizes.shape, np.bool_)
        found[:, over] = aside
        return list(found)

    def _sizes(self, kind: str, values: pa.Array) -> Sizes:
        there = values.is_valid().to_numpy(zero_copy_only=False)
        if kind in self.fixed:
            return np.where(there, self.fixed[kind][0], 0)
        if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            # Four digits take two bytes, on both sides of the point.
            digits = pc.binary_length(as_text(values)).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
            return np.where(there, np.minimum(5 + 2 * -(-digits // 4), self.widest), 0)
        length = pc.binary_length(values).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return np.where(there, np.where(length > self.short, self.long, length + 1), 0)


def _width(values: pa.Array) -> Sizes:
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        found: Sizes = pc.binary_length(values).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return found
    return np.zeros(len(values), np.int64)


def _stored(sizes: Sizes, steps: Sequence[int]) -> Sizes:
    """The size of rows, with the gaps before aligned values."""
    at = np.zeros(sizes.shape[1], np.int64)
    for size, step in zip(sizes, steps, strict=True):
        if step > 1:
            at = np.where(size > 0, -(-at // step) * step, at)
        at = at + size
    return at
