"""How rows are merged into a table by their key: what a staged row has beyond the values of its columns.

Rows of one load that share a key are folded into one (see ``fold_by_key``). With a version that is not enough: only the
engine knows which of them are newer than the table's row. Such a key is therefore staged several times, once per
version, each time as the fold of the rows *from that version on*. The engine takes the row whose turn it is:
``after < version of the table's row <= upto``, or the first if the table has no row or no version.
"""

from __future__ import annotations

from dataclasses import dataclass

TURN, AFTER, UPTO = "#turn", "#after", "#upto"
"""Columns of staged rows; no data column has such a name. A row without a turn is the only one of its key."""


@dataclass(frozen=True)
class Merge:
    """The columns that rows are merged by, in our names."""

    key: tuple[str, ...]
    version: str | None = None
    """A row changes nothing if the table's row has a higher version."""
    in_turns: bool = False
    """Whether a key can be staged several times."""
    losing: frozenset[str] = frozenset()
    """Columns whose value a row may carry only in ``_unmapped``: the column then becomes NULL."""
