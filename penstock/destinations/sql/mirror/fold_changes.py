"""Many changes to a table, in the order of the log, as what is left to do in the end.

Rows of a table are followed by where they are: a change that gives a row another key moves it, what happened to it
before goes along, and what stood there is gone. So in the end each row that is still there has the place (key) that it
was at in the beginning, if it was there then, the place that it is at now, and the changes that made it what it is.
Nothing here knows values: keys are numbers, changes are rows of arrays.
"""

from __future__ import annotations

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
    """Like an insert it *puts* a row: the row of its key has these values, and what is not said of it stays."""
    DELETE = 2
    TRUNCATE = 3
    NOTHING = 4
    """It says nothing of a row, or it has failed already."""


NONE = -1
"""No key, no row."""


@dataclass(frozen=True)
class Folded:
    """What changes come to. Rows are numbered from 0; ``origin`` and ``place`` are keys."""

    truncated: bool
    """The table is emptied first. Then nothing is ``gone`` and every row is new."""
    gone: Numbers
    """Keys whose rows are taken out before any row is put: deleted, moved away, or replaced by another row."""
    row: Numbers
    """Per change the row that it is part of, ``NONE`` if nothing of it is left."""
    origin: Numbers
    """Per row where it was, ``NONE`` if it is new."""
    place: Numbers
    """Per row where it is now."""

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
    """``key`` is the key of each change, below ``keys``; ``old`` the one that its row had before, if it had another."""
    truncates = np.flatnonzero(change == Change.TRUNCATE)
    start = int(truncates[-1]) + 1 if len(truncates) else 0
    truncated = start > 0
    row = np.full(len(change), NONE, np.int64)
    origin = np.full(len(change), NONE, np.int64)
    place = np.full(len(change), NONE, np.int64)
    gone = np.zeros(keys, np.bool_)
    count = _follow(change, key, old, start, truncated, row, origin, place, gone)
    origin, place = origin[:count], place[:count]
    left = place != NONE
    number = np.where(left, np.cumsum(left) - 1, NONE)
    row[row != NONE] = number[row[row != NONE]]
    return Folded(
        truncated,
        np.zeros(0, np.int64) if truncated else np.flatnonzero(gone),
        row,
        origin[left],
        place[left],
    )


def puts(change: Kinds) -> Bools:
    found: Bools = change <= Change.UPDATE
    return found


_UNSEEN, _EMPTY = -1, -2
# As plain integers, for compiled code.
_UPDATE, _DELETE = int(Change.UPDATE), int(Change.DELETE)


@compiled
def _follow(
    change: Kinds,
    key: Numbers,
    old: Numbers,
    start: int,
    truncated: bool,
    row: Numbers,
    origin: Numbers,
    place: Numbers,
    gone: Bools,
) -> int:
    """Give every change from ``start`` on its row, and every row its origin and place. How many rows there were."""
    # Which row is at each key: one that no change has spoken of yet, none, or its number.
    at = np.full(len(gone), _EMPTY if truncated else _UNSEEN, np.int64)
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
    return count


@dataclass(frozen=True)
class Counted:
    """What changes to a table without a key come to: how often each distinct row goes, and which rows then come."""

    truncated: bool
    goes: Numbers
    """Rows, by their numbers; each goes as often as ``times`` says, or as it is there."""
    times: Numbers
    comes: Numbers
    """Changes whose rows come, in their order."""


def count(change: Kinds, row: Numbers, old: Numbers) -> Counted:
    """Rows have numbers, equal rows the same. A change puts or deletes ``row``; one that puts it in the place of
    another takes away ``old`` first. What is not there cannot go, so a row counts down to none and no further."""
    truncates = np.flatnonzero(change == Change.TRUNCATE)
    start = int(truncates[-1]) + 1 if len(truncates) else 0
    later = np.arange(len(change)) >= start
    puts_row = later & puts(change)
    at = np.concatenate([np.flatnonzero(puts_row & (old != NONE)), np.flatnonzero(later & (change == Change.DELETE)),
                         np.flatnonzero(puts_row)])  # fmt: skip
    coming = np.arange(len(at)) >= len(at) - int(puts_row.sum())
    which = np.where(coming | (change[at] == Change.DELETE), row[at], old[at])
    # By row, then in the order of the log, and of one change what goes before what comes.
    order = np.lexsort((coming, at, which))
    at, coming, which = at[order], coming[order], which[order]
    begins = np.flatnonzero(np.diff(which, prepend=NONE))
    if not len(begins):
        return Counted(start > 0, which, which, at)
    total = np.cumsum(np.where(coming, 1, -1))
    base = np.where(begins, total[begins - 1], 0)
    lowest = np.minimum(np.minimum.reduceat(total, begins) - base, 0)
    ends = np.append(begins[1:], len(at)) - 1
    left = total[ends] - base - lowest
    # Of the changes that put a row the last ones count: as many as are left after the lowest point.
    group = np.searchsorted(begins, np.arange(len(at)), side="right") - 1
    put_so_far = np.cumsum(coming)
    rank_from_end = put_so_far[ends][group] - put_so_far
    comes = np.sort(at[coming & (rank_from_end < left[group])])
    goes = np.flatnonzero(lowest < 0) if not start else np.zeros(0, np.int64)
    return Counted(start > 0, which[begins][goes], -lowest[goes], comes)
