"""Folds many changes to a table, in the order of the log, into what remains to be done in the end.

Rows are tracked by their place (key): a change that gives a row another key moves it with all its earlier changes, and
replaces the row that stood there. So in the end each remaining row has its original place, if it existed in the
beginning, its place now, and the changes that made it. Nothing here looks at values: keys are numbers, changes are rows
of arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from penstock.compiled import compiled

Numbers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Kinds = npt.NDArray[np.int8]


class Change(IntEnum):
    """What a record does to its table."""

    INSERT = 0
    UPDATE = 1
    """Like an insert it *puts* a row: the row of its key gets these values, and columns that it does not carry stay."""
    DELETE = 2
    TRUNCATE = 3
    NOTHING = 4
    """It concerns no row, or it has failed already."""
    BEGIN = 5
    """The first copy of the table into this log begins. It concerns no row of the log, only rows that were in the table
    before; it is settled before changes are folded."""


NONE = -1
"""No key, no row."""


@dataclass(frozen=True)
class Folded:
    """The result of folding changes. Rows are numbered from 0; ``origin`` and ``place`` are keys."""

    truncated: bool
    """The table is emptied first. Then nothing is ``gone`` and every row is new."""
    gone: Numbers
    """Keys whose rows are deleted before any row is put: deleted, moved away, or replaced by another row."""
    row: Numbers
    """The row that each change is part of, ``NONE`` if nothing of it is left."""
    origin: Numbers
    """The original key of each row, ``NONE`` if it is new."""
    place: Numbers
    """The key of each row now."""
    onto_untouched: Bools
    """Whether a row was moved to its place before any other change touched that place."""

    @property
    def rows(self) -> int:
        return len(self.place)

    @cached_property
    def new(self) -> Bools:
        found: Bools = self.origin == NONE
        return found

    @cached_property
    def moved(self) -> Bools:
        found: Bools = ~self.new & (self.origin != self.place)
        return found


def fold(change: Kinds, key: Numbers, old: Numbers, keys: int) -> Folded:
    """``key`` is the key of each change, below ``keys``; ``old`` is the key that its row had before, if it changed."""
    truncates = np.flatnonzero(change == Change.TRUNCATE)
    start = int(truncates[-1]) + 1 if len(truncates) else 0
    truncated = start > 0
    row, origin, place, onto_untouched, gone = _follow(change, key, old, start, truncated, keys)
    left = place != NONE
    number = np.where(left, np.cumsum(left) - 1, NONE)
    row[row != NONE] = number[row[row != NONE]]
    went = np.zeros(0, np.int64) if truncated else np.flatnonzero(gone)
    return Folded(truncated, went, row, origin[left], place[left], onto_untouched[left])


def is_put(change: Kinds) -> Bools:
    found: Bools = change <= Change.UPDATE
    return found


_UNSEEN, _EMPTY = -1, -2
# As plain integers, for compiled code.
_UPDATE, _DELETE = int(Change.UPDATE), int(Change.DELETE)


@compiled
def _follow(
    change: Kinds, key: Numbers, old: Numbers, start: int, truncated: bool, keys: int
) -> tuple[Numbers, Numbers, Numbers, Bools, Bools]:
    """The row of every change from ``start`` on, the origin and the place of every row, which of them came to a place
    that nothing had touched, and which keys lose theirs."""
    found = np.full((3, len(change)), -1, np.int64)
    row, origin, place = found[0], found[1], found[2]
    onto_untouched = np.zeros(len(change), np.bool_)
    gone = np.zeros(keys, np.bool_)
    # Which row is at each key: one that no change has touched yet, none, or its number.
    at = np.full(keys, _EMPTY if truncated else _UNSEEN, np.int64)
    count = 0
    for k in range(start, len(change)):
        if change[k] <= _UPDATE:
            here = key[k]
            source = old[k] if old[k] >= 0 else here
            number = at[source]
            if number < 0:
                origin[count] = source if number == _UNSEEN else -1
                number = count
                count += 1
            if source != here:
                at[source] = _EMPTY
                gone[source] = True
                gone[here] = True
                onto_untouched[number] = at[here] == _UNSEEN
                if at[here] >= 0:
                    place[at[here]] = -1
            at[here] = number
            place[number] = here
            row[k] = number
        elif change[k] == _DELETE:
            if at[key[k]] >= 0:
                place[at[key[k]]] = -1
            at[key[k]] = _EMPTY
            gone[key[k]] = True
    return row, origin[:count], place[:count], onto_untouched[:count], gone


@dataclass(frozen=True)
class FoldedKeyless:
    """The result of folding changes to a table without a key: how often each distinct row goes, and which rows come."""

    truncated: bool
    goes: Numbers
    """Rows by number; each goes as often as ``times`` says. A table that was emptied first has none of them."""
    times: Numbers
    comes: Numbers
    """Changes whose rows come, in order."""


def count(change: Kinds, row: Numbers, old: Numbers) -> FoldedKeyless:
    """Rows have numbers, equal rows the same. A change puts or deletes ``row``; a change that replaces another row
    deletes ``old`` first. A row that is not there cannot go, so no count falls below zero."""
    truncates = np.flatnonzero(change == Change.TRUNCATE)
    start = int(truncates[-1]) + 1 if len(truncates) else 0
    later = np.arange(len(change)) >= start
    puts_row = later & is_put(change)
    at = np.concatenate([np.flatnonzero(puts_row & (old != NONE)), np.flatnonzero(later & (change == Change.DELETE)),
                         np.flatnonzero(puts_row)])  # fmt: skip
    coming = np.arange(len(at)) >= len(at) - int(puts_row.sum())
    which = np.where(coming | (change[at] == Change.DELETE), row[at], old[at])
    # By row, then in the order of the log; within one change the row that goes comes first.
    order = np.lexsort((coming, at, which))
    at, coming, which = at[order], coming[order], which[order]
    begins = np.flatnonzero(np.diff(which, prepend=NONE))
    if not len(begins):
        return FoldedKeyless(start > 0, which, which, at)
    total = np.cumsum(np.where(coming, 1, -1))
    base = np.where(begins, total[begins - 1], 0)
    lowest = np.minimum(np.minimum.reduceat(total, begins) - base, 0)
    ends = np.append(begins[1:], len(at)) - 1
    left = total[ends] - base - lowest
    # The last changes that put a row count: as many as are left after the lowest point.
    group = np.searchsorted(begins, np.arange(len(at)), side="right") - 1
    put_so_far = np.cumsum(coming)
    rank_from_end = put_so_far[ends][group] - put_so_far
    comes = np.sort(at[coming & (rank_from_end < left[group])])
    goes = np.flatnonzero(lowest < 0)
    return FoldedKeyless(start > 0, which[begins][goes], -lowest[goes], comes)


def without_row(change: Kinds, row: Numbers, old: Numbers, lacking: Mapping[int, int]) -> list[int]:
    """The changes that find no row to take away, given how many of each row the table lacks. Rows that earlier changes
    put are taken first, then those of the table: so the last ones find none."""
    truncates = np.flatnonzero(change == Change.TRUNCATE)
    start = int(truncates[-1]) + 1 if len(truncates) else 0
    put, takes = dict.fromkeys(lacking, 0), {number: list[int]() for number in lacking}
    # One by one: this happens only to a table that is not equal to its source.
    for place in range(start, len(change)):
        puts = change[place] <= Change.UPDATE
        gone = int(old[place]) if puts else int(row[place])
        if gone in lacking and (puts or change[place] == Change.DELETE):
            if put[gone]:
                put[gone] -= 1
            else:
                takes[gone].append(place)
        if puts and int(row[place]) in lacking:
            put[int(row[place])] += 1
    return sorted(place for number, missing in lacking.items() for place in takes[number][-missing:])
