"""How rows are merged into a table by their key: what a staged row says beyond the values of its columns.

Rows of one load that share a key are folded into one (see ``fold_by_key``). With a version that is not enough: which of
them are newer than the table's row is only known to the engine. Such a key is then staged several times, once for every
version, each time with what the rows *from that version on* say together. Of these the engine takes the one whose turn
it is: ``after < version of the table's row <= upto``, or the first where the table has no row or no version.
"""

from __future__ import annotations

from dataclasses import dataclass

TURN, AFTER, UPTO = "#turn", "#after", "#upto"
"""Columns of staged rows; no column of data is called so. A row without a turn is the only one of its key."""


@dataclass(frozen=True)
class Merge:
    """By which columns rows are merged, in our names."""

    key: tuple[str, ...]
    version: str | None = None
    """A row changes nothing where the table's has a higher one."""
    in_turns: bool = False
    """Whether keys can be staged several times."""
    losing: frozenset[str] = frozenset()
    """Columns of which a row may carry a value in ``_unmapped`` alone: the column then becomes NULL."""
