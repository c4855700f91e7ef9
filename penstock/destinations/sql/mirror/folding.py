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

from penstock.json.tokens import compiled

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
    """What changes to a table without a key come to: how often each distinct row comes or goes."""

    truncated: bool
    goes: Numbers
    """Rows (as changes number them) that go, each once."""
    times: Numbers
    """How often each of them goes."""
    comes: Numbers
    """Changes whose rows come, in their order."""


def count(change: Kinds, row: Numbers, old: Numbers) -> Counted:
    """Rows have numbers, equal rows the same. A change puts or deletes ``row``; one that puts it in the place of
    another takes away ``old``. A row that comes and goes again, or goes and comes back, is left alone."""
    truncates = np.flatnonzero(change == Change.TRUNCATE)
    start = int(truncates[-1]) + 1 if len(truncates) else 0
    later = np.arange(len(change)) >= start
    put = np.flatnonzero(later & puts(change))
    leaves = np.concatenate([row[later & (change == Change.DELETE)], old[put][old[put] != NONE]])
    size = int(max(row.max(initial=0), old.max(initial=0))) + 1
    net = np.bincount(row[put], minlength=size) - np.bincount(leaves, minlength=size)
    # Of each row that comes more often than it goes the last ones stay: they are the ones that are still there.
    order = np.argsort(row[put], kind="stable")[::-1]
    ordered = row[put][order]
    rank = np.arange(len(ordered)) - np.searchsorted(-ordered, -ordered)
    comes = np.sort(put[order[rank < net[ordered]]])
    goes = np.flatnonzero(net < 0)
    if start:
        goes = goes[:0]
    return Counted(start > 0, goes, -net[goes], comes)
