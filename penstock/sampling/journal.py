"""What a batch has done to a shard's traces, as moves: made again, they build the same state again.

A journal has no policies in it and no limits, only what came of them. So a state is the same state, whatever the config
says that it is read with.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.compiled import borrowing, compiled
from penstock.holding.item import Items
from penstock.holding.item_chains import NONE, Chains, chain_items, drop_items
from penstock.sampling.fold_units import Units
from penstock.sampling.span_item import NO_POLICY
from penstock.sampling.trace_homes import (
    NOT_SAMPLED_HOME,
    NOWHERE,
    OLDEST,
    SAMPLED_HOME,
    TRACE,
    Homes,
    Numbers,
    Rows,
    Words,
    find_trace,
    forget,
    move_to_newest,
    new_trace,
    put_newest,
    settle,
    take_out,
)

MOVE, REFRESH, WAIT, RELEASE, EMPTY = range(5)
"""Moves. ``MOVE``: a trace becomes the newest of a home, and is known as a row says. ``REFRESH``: it becomes the newest
where it is. ``WAIT``: items wait for it; all else stays. ``RELEASE``: it is no longer waited for and counts as not
sampled. ``EMPTY``, the last one if it is there: all traces are forgotten."""
EVICT = 16
"""With a home added: its oldest trace leaves it. One that waits counts as not sampled; one that is decided is
forgotten."""


class Journal(NamedTuple):
    """Being written. There must be room for all that may come."""

    kinds: npt.NDArray[np.uint8]
    rows: Rows
    """Of ``MOVE`` all is filled in; of ``REFRESH`` and ``RELEASE`` the key; of others nothing."""
    used: Numbers
    """One number: how many moves there are."""


class Moves(NamedTuple):
    """Written: what a blob has."""

    kinds: npt.NDArray[np.uint8]
    rows: Rows
    """Of ``MOVE``."""
    keys: Words
    """Of ``REFRESH``, ``WAIT`` and ``RELEASE``: two halves each."""
    owners: Numbers
    """Per item, the move by which it waits."""


def new_journal(units: int, known: int) -> Journal:
    """Room for a batch of so many units in a state that knows so many traces. What is not used takes no memory."""
    room = units + 3 * (units + known) + 1
    return Journal(np.empty(room, np.uint8), np.empty(room, TRACE), np.zeros(1, np.int64))


def written(journal: Journal, units: Units, items: Items) -> tuple[Moves, Items]:
    """The moves of a journal, and those of the items of its batch that they made wait, in their order."""
    kinds, rows = journal.kinds[: journal.used[0]], journal.rows[: journal.used[0]]
    owners = np.full(len(items), NONE, np.int64)
    owners[units.rows] = np.repeat(units.units["move"], units.units["count"])
    waits = np.flatnonzero(owners != NONE)
    keyed = rows.compress((kinds == REFRESH) | (kinds == RELEASE))
    keys = np.stack([keyed["high"], keyed["low"]], axis=1)
    return Moves(kinds, rows.compress(kinds == MOVE), keys, owners[waits]), items.take(waits)


@borrowing
def record_move(journal: Journal, traces: Rows, number: int) -> int:
    """Write down where a trace is now and what is known of it; the number of the move."""
    move = record(journal, MOVE)
    journal.rows[move] = traces[number]
    journal.rows[move]["older"] = journal.rows[move]["newer"] = NONE
    return move


@borrowing
def record_key(journal: Journal, kind: int, high: np.uint64, low: np.uint64) -> None:
    row = journal.rows[record(journal, kind)]
    row["high"] = high
    row["low"] = low


@borrowing
def record(journal: Journal, kind: int) -> int:
    move = int(journal.used[0])
    journal.kinds[move] = kind
    journal.used[0] += 1
    return move


@compiled
def make_moves(homes: Homes, chains: Chains, moves: Moves, place: int) -> None:
    """Make the moves again. The items that they make wait stand from ``place`` on; there is room for all traces."""
    begins, items = _by_owner(moves)
    row = key = 0
    for move in range(len(moves.kinds)):
        kind = moves.kinds[move]
        if kind == MOVE:
            known = moves.rows[row]
            number = find_trace(homes, known["high"], known["low"])
            if number < 0:
                number = new_trace(homes, known["high"], known["low"])
            if known["home"] >= SAMPLED_HOME:
                drop_items(chains, number, 0)
            take_out(homes, number)
            homes.traces[number] = known
            homes.traces[number]["home"] = NOWHERE
            put_newest(homes, number, known["home"])
            row += 1
        elif kind < EMPTY:
            number = find_trace(homes, moves.keys[key, 0], moves.keys[key, 1])
            key += 1
            if kind == REFRESH:
                move_to_newest(homes, number, homes.traces[number]["home"])
            elif kind == RELEASE:
                drop_items(chains, number, 0)
                settle(homes, number, NOT_SAMPLED_HOME, NO_POLICY, 1.0)
        elif kind > EVICT:
            number = homes.ends[kind - EVICT, OLDEST]
            if kind - EVICT >= SAMPLED_HOME:
                forget(homes, number)
            else:
                drop_items(chains, number, 0)
                settle(homes, number, NOT_SAMPLED_HOME, NO_POLICY, 1.0)
        if begins[move] < begins[move + 1]:
            chain_items(chains, number, items[begins[move] : begins[move + 1]], place)


@compiled
def _by_owner(moves: Moves) -> tuple[Numbers, Numbers]:
    """The items of every move, side by side and in their order, and where those of each begin."""
    begins = np.zeros(len(moves.kinds) + 1, np.int64)
    for owner in moves.owners:
        begins[owner + 1] += 1
    for move in range(len(moves.kinds)):
        begins[move + 1] += begins[move]
    free, items = begins.copy(), np.empty(len(moves.owners), np.int64)
    for item in range(len(moves.owners)):
        items[free[moves.owners[item]]] = item
        free[moves.owners[item]] += 1
    return begins, items
