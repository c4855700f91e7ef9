"""Folds rows of one load that share a key, as if they had been merged one after the other.

Their order is that of the log, over all partitions. A row changes only the fields that it carries, in a column or in
``_unmapped``: a value that found its column removes what ``_unmapped`` keeps for that column, and one that did not
empties the column. With a version, a row that is older than one before it changes nothing. Rows whose key is unique
pass through untouched, and cost only the comparison of the key.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destinations.contract import Order
from penstock.destinations.sql.load.merge_rows import AFTER, TURN, UPTO
from penstock.destinations.sql.unmapped.unmapped_values import parse_unmapped, without_members
from penstock.flatten.unmapped.unmapped_column import UNMAPPED
from penstock.json.merge import merge_objects

Bools = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


class SharedKeys:
    """Which rows of a load share a key, from the key's columns (and the version) of its batches, in their order."""

    def __init__(
        self,
        keys: Sequence[Sequence[pa.Array]],
        versions: Sequence[pa.Array] | None = None,
        places: Sequence[tuple[pa.Array, pa.Array]] | None = None,
        order: Order | None = None,
        equal: Numbers | None = None,
    ) -> None:
        """``places`` are the partitions and offsets of each batch's rows. Without them rows keep the given order.
        ``equal`` has a code for every code: keys that differ here and have the same code in it share a key, too."""
        columns = [pa.chunked_array(list(chunks)) for chunks in zip(*keys, strict=True)]
        codes = key_codes(columns) if columns and len(columns[0]) else np.zeros(0, np.int64)
        if equal is not None:
            codes = equal[codes]
        shared = np.bincount(codes, minlength=1)[codes] > 1
        ends = np.cumsum([len(batch[0]) for batch in keys])[:-1]
        self.count = int(codes.max(initial=-1)) + 1
        """How many keys there are, at most."""
        self.codes = np.split(codes, ends)
        self.shared = np.split(shared, ends)
        self.in_turns = bool(versions) and _versions_differ(codes, shared, pa.chunked_array(versions))
        """Whether rows of one key have several versions: see ``merge_rows``."""
        turns = None if places is None else _turns(shared, places, order)
        self.turns = None if turns is None else np.split(turns, ends)
        """The order of the rows of a key; ``None``: as they are given."""


class Folding:
    """Folds the rows of a load, which is given batch by batch."""

    def __init__(self, keys: SharedKeys, version: str | None) -> None:
        self._keys = keys
        self._version = version
        self._twins: list[pa.Table] = []
        self._twin_codes: list[Numbers] = []
        self._twin_turns: list[Numbers] = []
        self.given: list[Numbers] = []
        """The codes of the keys of all rows that were returned, in their order."""

    def add_batch(self, batch: int, rows: pa.RecordBatch, kept: Bools | None = None) -> pa.RecordBatch:
        """Take a batch: returns the rows whose key is unique and holds the others for ``folded_rows``. ``kept`` says
        which of the rows whose keys were given are in the batch."""
        shared, codes = self._keys.shared[batch], self._keys.codes[batch]
        turns = None if self._keys.turns is None else self._keys.turns[batch]
        if kept is not None:
            shared, codes, turns = shared[kept], codes[kept], None if turns is None else turns[kept]
        self.given.append(codes[~shared])
        if not shared.any():
            return rows
        self._twins.append(pa.table(rows.filter(pa.array(shared))))
        self._twin_codes.append(codes[shared])
        if turns is not None:
            self._twin_turns.append(turns[shared])
        return rows.filter(pa.array(~shared))

    def folded_rows(self) -> list[pa.RecordBatch]:
        """One row for each key that several rows share, or for each of its turns. Call it after the last batch."""
        if not self._twins:
            return []
        rows = pa.concat_tables(self._twins, promote_options="permissive")
        codes = np.concatenate(self._twin_codes)
        if self._twin_turns:
            order = np.argsort(np.concatenate(self._twin_turns), kind="stable")
            rows, codes = rows.take(pa.array(order)), codes[order]
        version = self._version if self._version in rows.schema.names else None
        groups = _Groups.of(codes, _ranks(rows.column(version)) if version else None)
        folded = _folded(rows, groups)
        self.given.append(codes[groups.order[groups.starts]])
        if self._keys.in_turns and version is not None:
            folded = _with_turns(folded, rows.column(version), groups)
        return list(folded.to_batches())


class _Groups:
    """Rows sorted by key, and within a key in the order in which they apply.

    A *suffix* is a row with all later rows of its key: the suffix of a key's first row has all its rows.
    """

    def __init__(self, order: Numbers, codes: Numbers, starts: Bools) -> None:
        self.order = order
        """The row at each place."""
        self.begins = np.flatnonzero(_changes(codes))
        """The places of each key's first row."""
        self.starts = np.flatnonzero(starts)
        """The places where the wanted suffixes begin; the first row of every key is among them."""
        self.of_place = np.searchsorted(self.begins, np.arange(len(codes)), side="right") - 1
        self.of_start = self.of_place[self.starts]

    @classmethod
    def of(cls, codes: Numbers, ranks: Numbers | None) -> _Groups:
        """``ranks`` order the rows' versions. Makes a suffix for each version of a key that does not come too late."""
        order = np.argsort(codes, kind="stable")
        if ranks is None:
            return cls(order, codes[order], _changes(codes[order]))
        order = order[ranks[order] >= _running_maximum(ranks[order], codes[order])]
        return cls(order, codes[order], _changes(codes[order]) | _changes(ranks[order]))

    def last(self, chosen: Bools) -> Numbers:
        """The place of the last chosen row of each key, -1 if it has none."""
        places = np.maximum.reduceat(np.where(chosen, np.arange(len(chosen)), -1), self.begins)
        return np.where(places < self.begins, -1, places)

    def take(self, column: pa.ChunkedArray, places: Numbers, missing: Bools | None = None) -> pa.Array:
        return column.take(pa.array(self.order[places], mask=missing)).combine_chunks()


def _changes(values: Numbers) -> Bools:
    """Where a value differs from the one before it."""
    found: Bools = np.diff(values, prepend=values[0] - 1) != 0
    return found


def _folded(rows: pa.Table, groups: _Groups) -> pa.Table:
    """One row per suffix, with the last value of each column."""
    names = {name.lower(): name for name in rows.schema.names}
    spare = groups.take(rows.column(names[UNMAPPED]), np.arange(len(groups.order))) if UNMAPPED in names else None
    aside = parse_unmapped(spare).by_key if spare is not None and spare.null_count < len(spare) else {}
    columns: dict[str, pa.Array] = {}
    outdated: dict[str, Bools] = {}
    for name, real in names.items():
        if name == UNMAPPED:
            continue
        column = rows.column(real)
        valid = column.is_valid().to_numpy(zero_copy_only=False)[groups.order]
        said = valid
        if name in aside:
            present = aside[name].present
            said = valid | present
            outdated[name] = present & (np.arange(len(present)) < groups.last(valid)[groups.of_place])
        last = groups.last(said)[groups.of_start]
        columns[real] = groups.take(column, np.maximum(last, 0), last < groups.starts)
    if spare is not None:
        columns[names[UNMAPPED]] = _folded_unmapped(without_members(spare, outdated) if outdated else spare, groups)
    return pa.table([columns[name] for name in rows.schema.names], schema=rows.schema)


def _folded_unmapped(texts: pa.Array, groups: _Groups) -> pa.Array:
    """The ``_unmapped`` of each suffix: all members that its rows keep there, each with its last value."""
    places = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False))
    if not len(places):
        return pa.nulls(len(groups.starts), texts.type)
    found = texts.take(pa.array(places)).to_pylist()
    # Row by row: few rows have anything in _unmapped, and fewer of them share a key.
    for number in range(len(places) - 2, -1, -1):
        if groups.of_place[places[number]] == groups.of_place[places[number + 1]]:
            found[number] = merge_objects(found[number].encode(), found[number + 1].encode()).decode()
    following = np.searchsorted(places, groups.starts)
    nearest = np.minimum(following, len(places) - 1)
    absent = (following == len(places)) | (groups.of_place[places[nearest]] != groups.of_start)
    return pa.array(found, texts.type).take(pa.array(nearest, mask=absent))


def _with_turns(folded: pa.Table, versions: pa.ChunkedArray, groups: _Groups) -> pa.Table:
    first = np.isin(groups.starts, groups.begins)
    turns = np.arange(len(first)) - np.flatnonzero(first)[np.cumsum(first) - 1]
    # The version that each suffix begins with, and the one before it.
    upto = groups.take(versions, groups.starts)
    after = groups.take(versions, np.maximum(groups.starts - 1, 0), first)
    for name, column in {TURN: pa.array(turns), AFTER: after, UPTO: upto}.items():
        folded = folded.append_column(name, column)
    return folded


def _turns(shared: Bools, places: Sequence[tuple[pa.Array, pa.Array]], order: Order | None) -> Numbers | None:
    """Numbers that sort the shared rows by their place in the log; ``None`` if they are in that order already."""
    if not shared.any():
        return None
    partitions, offsets = (
        pa.chunked_array(list(chunks)).to_numpy().astype(np.int64)[shared] for chunks in zip(*places, strict=True)
    )
    if (partitions == partitions[0]).all():
        if (np.diff(offsets) >= 0).all():
            return None
        ranks = offsets
    elif order is None:
        ranks = np.argsort(np.lexsort((offsets, partitions)), kind="stable")
    else:
        ranks = order.ranks(partitions, offsets)
    turns = np.zeros(len(shared), np.int64)
    turns[shared] = ranks
    return turns


def key_codes(columns: Sequence[pa.ChunkedArray]) -> Numbers:
    """A number per row; equal keys have equal numbers."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.unify_dictionaries().combine_chunks()
        own: Numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if len(columns) == 1:
            return own
        # Renumbered at each column, so that the product cannot overflow.
        _, codes = np.unique(codes * (len(encoded.dictionary) + 1) + own, return_inverse=True)
    return codes


def equal_codes(codes: Numbers, classes: Numbers, most: int) -> Numbers:
    """A code for every code below ``most``: the same for those that share a class. ``classes`` has the class of each of
    these codes."""
    found = np.arange(most)
    _, numbers = np.unique(classes, return_inverse=True)
    lowest = np.full(numbers.max() + 1, len(found), np.int64)
    np.minimum.at(lowest, numbers, codes)
    found[codes] = lowest[numbers]
    return found


def _versions_differ(codes: Numbers, chosen: Bools, versions: pa.ChunkedArray) -> bool:
    """Whether chosen rows of equal code have several versions."""
    if not chosen.any():
        return False
    few = codes[chosen]
    pairs = key_codes([pa.chunked_array([few]), versions.filter(pa.array(chosen))])
    return len(np.unique(pairs)) > len(np.unique(few))


def _ranks(column: pa.ChunkedArray) -> Numbers:
    """The order of a column's values as numbers from 1 on; 0 for nulls."""
    encoded = column.combine_chunks().dictionary_encode()
    ranks = np.empty(len(encoded.dictionary) + 1, np.int64)
    ranks[0] = 0
    ranks[pc.sort_indices(encoded.dictionary).to_numpy() + 1] = np.arange(1, len(ranks))
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    found: Numbers = ranks[codes + 1]
    return found


def _running_maximum(ranks: Numbers, codes: Numbers) -> Numbers:
    """The highest rank so far among the rows of the same code, per row. Rows of a code are adjacent."""
    group = np.cumsum(np.diff(codes, prepend=codes[0]) != 0)
    lift = group * (ranks.max() + 1)
    lifted: Numbers = np.maximum.accumulate(ranks + lift) - lift
    return lifted
