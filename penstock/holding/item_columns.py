"""Items column by column: what a scan finds is made so, sent so, and looked at so.

Rows of a hundred bytes that are filled or read one column at a time go through memory once for each column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.holding.item import Items

Column = npt.NDArray[Any]
Selection = npt.NDArray[np.bool_] | npt.NDArray[np.int64]
"""A flag for each row, or the rows that are meant."""


class ItemColumns:
    """Items of a kind, which names their columns."""

    def __init__(self, kind: np.dtype[np.void], columns: Mapping[str, Column]) -> None:
        self.kind = kind
        self._columns = {name: np.asarray(columns[name], kind[name]) for name in kind.names or ()}

    @classmethod
    def of_rows(cls, rows: Items) -> ItemColumns:
        return cls(rows.dtype, {name: rows[name] for name in rows.dtype.names or ()})

    @classmethod
    def zeros(cls, kind: np.dtype[np.void], count: int) -> ItemColumns:
        return cls(kind, {name: np.zeros(count, kind[name]) for name in kind.names or ()})

    @classmethod
    def joined(cls, kind: np.dtype[np.void], pieces: Sequence[ItemColumns]) -> ItemColumns:
        if not pieces:
            return cls.zeros(kind, 0)
        return cls(kind, {name: np.concatenate([piece[name] for piece in pieces]) for name in kind.names or ()})

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, name: str) -> Column:
        return self._columns[name]

    def __setitem__(self, name: str, values: Column | np.generic | int) -> None:
        """Give a column new values, or all items the same one."""
        kind = self.kind[name]
        given = np.asarray(values, kind)
        self._columns[name] = given if given.ndim else np.full(len(self), given, kind)

    def take(self, rows: Selection) -> ItemColumns:
        return ItemColumns(self.kind, {name: column[rows] for name, column in self._columns.items()})

    def to_rows(self) -> Items:
        rows = np.empty(len(self), self.kind)
        for name, column in self._columns.items():
            rows[name] = column
        return rows
