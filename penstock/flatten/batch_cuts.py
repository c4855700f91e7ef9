"""Splits a batch with very many paths, so that no table becomes too large.

A table has a cell for every row and column, filled or not. Events that each have thousands of keys of their own would
make a nearly empty table of gigabytes; half as many events have about half the columns too. Documents are scanned once:
pieces share the leaves that were found.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from penstock.json.documents import Documents
from penstock.json.leaves import Leaves


def split_by_cells(found: Leaves, cell_limit: int) -> Iterator[tuple[int, Leaves]]:
    """Pieces of whole documents, in order, each with the index of its first document. Halves them until they fit."""
    count = len(found.documents)
    if count < 2 or len(found.paths) * count <= cell_limit:
        yield 0, found
        return
    middle = count // 2
    yield from split_by_cells(_piece(found, 0, middle), cell_limit)
    for first, piece in split_by_cells(_piece(found, middle, count), cell_limit):
        yield middle + first, piece


def _piece(found: Leaves, first: int, last: int) -> Leaves:
    docs = found.documents
    begin, end = np.searchsorted(found.record, [first, last]).tolist()
    used, places, column = np.unique(found.column[begin:end], return_index=True, return_inverse=True)
    by_first_leaf = np.argsort(places)
    rank = np.empty(len(used), np.int32)
    rank[by_first_leaf] = np.arange(len(used), dtype=np.int32)
    return Leaves(
        Documents(docs.buffer, docs.offsets[first : last + 1], docs.valid[first:last]),
        found.record[begin:end] - np.int32(first),
        rank[column],
        found.kind[begin:end],
        found.start[begin:end],
        found.end[begin:end],
        tuple(found.paths[place] for place in used[by_first_leaf].tolist()),
        found.broken_at[first:last],
        found.replaced.between(first, last),
    )
