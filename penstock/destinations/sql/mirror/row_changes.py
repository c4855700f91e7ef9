"""What an engine applies: rows that go, then rows that come.

A row that comes is whole, unless it has *gaps*: columns that no change of it carried. Those keep the value of the row
that stands at its place, or stood at its old one, and the engine fills them in first. They are marked in a column of
their own, a character per column that has any: ``1`` where the row has a gap. What a row keeps in ``_unmapped`` of
other columns is filled in with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.destinations.sql.schema.table_changes import Table

GAPS = "#gaps"
"""The column of staged rows that marks their gaps; null for a row without."""
ORIGIN = "#origin "
"""Before the names of the key's columns: where a row was, if it moves; null if it does not."""
TIMES = "#times"
"""How many rows like this one go, in a table without a key. No column of data is called so, or like the others."""


@dataclass(frozen=True)
class Changes:
    """Some changes of a table, folded. The rows may be asked for again, and are the same."""

    table: Table
    key: tuple[str, ...]
    """By our names; without one, rows are told apart by all that they have."""
    truncates: bool
    """Whether the table is emptied first."""
    gone: pa.Table
    """By the table's names: the keys of rows that go; without a key such rows themselves, with ``TIMES``."""
    columns: tuple[str, ...]
    """What the rows that come consist of, by our names."""
    count: int
    """How many rows come."""
    come: Callable[[], Iterator[pa.RecordBatch]]
    """Those rows, by the table's names, with ``GAPS`` and ``ORIGIN`` if there are any."""
    others: tuple[str, ...] = ()
    """Further columns of the table, which nothing that comes carries: gaps of all rows that are there. Any other row
    gets the column's default."""
    fills: bool = False
    """Whether rows that come must be filled in: those whose ``GAPS`` is not null."""
    gaps: tuple[str, ...] = ()
    """The columns that have gaps, by our names, in the order of their marks."""
    aside: tuple[str, ...] = ()
    """Further columns that changes carry and the table does not have: it keeps their values in ``_unmapped``. They have
    gaps like the others: then what is kept of them stays."""
    moves: bool = False
    """Whether any row with gaps comes from another place."""
    inserts: bool = True
    """Whether all rows that come were inserted: if nothing went wrong, none of them is there."""
