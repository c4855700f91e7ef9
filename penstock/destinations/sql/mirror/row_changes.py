"""What an engine applies: rows that go, then rows that come.

A row that comes is complete, unless it has *gaps*: columns that none of its changes carried. Gaps keep the value of the
table's row at its old place, or at its place if there is none; the engine fills them in first. A separate column marks
them, with a character per column that has gaps: ``1`` where the row has one. If rows move, one more character marks
those that may be at their place already. What ``_unmapped`` keeps for other columns is filled in with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.destinations.sql.schema.schema_operations import Table

GAPS = "#gaps"
"""The column of staged rows that marks their gaps; null for a row without."""
ORIGIN = "#origin "
"""Prefix of the key columns' names: the old key of a row that moves; null if it does not."""
TIMES = "#times"
"""How many rows like this one go, in a table without a key. No data column has such a name."""


NUMBER = "#number"
"""The number of this row among those that go, in a table without a key."""


@dataclass(frozen=True)
class Changes:
    """Some changes of a table, folded. The rows can be read again, and are the same."""

    table: Table
    key: tuple[str, ...]
    """By our names; without a key, rows are told apart by all their values."""
    truncates: bool
    """Whether the table is emptied first."""
    gone: pa.Table
    """By the table's names: the keys of rows that go; without a key the rows themselves, with ``TIMES`` and
    ``NUMBER``."""
    columns: tuple[str, ...]
    """The columns of the rows that come, by our names."""
    count: int
    """How many rows come."""
    come: Callable[[], Iterator[pa.RecordBatch]]
    """Those rows, by the table's names, with ``GAPS`` and ``ORIGIN`` if there are any."""
    others: tuple[str, ...] = ()
    """Further columns of the table, which no incoming row carries: gaps of all existing rows. Any other row gets the
    column's default."""
    fills: bool = False
    """Whether incoming rows must be filled in: those whose ``GAPS`` is not null."""
    gaps: tuple[str, ...] = ()
    """The columns that have gaps, by our names, in the order of their marks."""
    aside: tuple[str, ...] = ()
    """Further columns that changes carry and the table lacks: it keeps their values in ``_unmapped``. They have gaps
    like the others: then what ``_unmapped`` keeps for them stays."""
    moves: bool = False
    """Whether any row with gaps moves from another place."""
    inserts: bool = True
    """Whether all incoming rows were inserted: if nothing went wrong, the table has none of them."""
