"""Rows of one load that share a key, folded into one row per key, as if they had been merged one after the other.

A row changes what came before it only in the columns that it carries, and in ``_unmapped`` only in the fields. With a
version, a row that is older than one before it changes nothing. Rows whose key comes once pass through untouched, and
cost nothing but the look at the key.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.flatten.unmapped import UNMAPPED
from penstock.json.merge import merged


class Folding:
    """The rows of a load, which share keys or not. Built from the keys alone, then given the rows, batch by batch."""

    def __init__(self, keys: Sequence[Sequence[pa.Array]], version: str | None) -> None:
        """``keys`` are the key's columns of each batch, in the order in which the batches will come."""
        self._version = version
        columns = [pa.chunked_array(list(chunks)) for chunks in zip(*keys, strict=True)]
        codes = _codes(columns) if columns and len(columns[0]) else np.zeros(0, np.int64)
        counts = np.bincount(codes, minlength=1)
        ends = np.cumsum([len(batch[0]) for batch in keys])
        self._codes = np.split(codes, ends[:-1])
        self._shared = np.split(counts[codes] > 1, ends[:-1])
        self._twins: list[pa.Table] = []
        self._twin_codes: list[npt.NDArray[np.int64]] = []

    def alone(self, batch: int, rows: pa.RecordBatch, kept: npt.NDArray[np.bool_] | None = None) -> pa.RecordBatch:
        """Of the batch's rows those whose key comes once; the others are held for ``together``. ``kept`` says which of
        the rows, whose keys were given, are there."""
        shared, codes = self._shared[batch], self._codes[batch]
        if kept is not None:
            shared, codes = shared[kept], codes[kept]
        if not shared.any():
            return rows
        self._twins.append(pa.table(rows.filter(pa.array(shared))))
        self._twin_codes.append(codes[shared])
        return rows.filter(pa.array(~shared))

    def together(self) -> list[pa.RecordBatch]:
        """One row for each key that several rows share. Asked for after the last batch."""
        if not self._twins:
            return []
        rows = pa.concat_tables(self._twins, promote_options="permissive")
        return list(_last_values(rows, np.concatenate(self._twin_codes), self._version).to_batches())


def _codes(columns: Sequence[pa.ChunkedArray]) -> npt.NDArray[np.int64]:
    """A number per row; equal keys have equal numbers."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.unify_dictionaries().combine_chunks()
        own: npt.NDArray[np.int64] = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if len(columns) == 1:
            return own
        # Numbered anew at each column, so that the product cannot overflow.
        _, codes = np.unique(codes * (len(encoded.dictionary) + 1) + own, return_inverse=True)
    return codes


def _last_values(rows: pa.Table, codes: npt.NDArray[np.int64], version: str | None) -> pa.Table:
    """One row per code: of each column the last value that is there."""
    order = np.argsort(codes, kind="stable")
    if version is not None and version in rows.schema.names:
        ranks = _ranks(rows.column(version))[order]
        current = _running_maximum(ranks, codes[order])
        order = order[ranks >= current]
    grouped = codes[order]
    begins = np.flatnonzero(np.diff(grouped, prepend=grouped[0] - 1))
    positions = np.arange(len(order))
    columns = []
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if name.lower() == UNMAPPED:
            columns.append(_kept_aside(column, order, begins))
            continue
        valid = column.is_valid().to_numpy(zero_copy_only=False)[order] if column.null_count else None
        last = positions if valid is None else np.where(valid, positions, -1)
        last = np.maximum.reduceat(last, begins)
        # A group without a value must not take that of the group before it.
        taken = pa.array(order[np.maximum(last, 0)], mask=last < begins)
        columns.append(column.take(taken).combine_chunks())
    return pa.table(columns, schema=rows.schema)


def _kept_aside(column: pa.ChunkedArray, order: npt.NDArray[np.int64], begins: npt.NDArray[np.int64]) -> pa.Array:
    """Per group the object of all members that its rows keep aside, of each the last value."""
    kept: list[str | None] = [None] * len(begins)
    texts = column.take(pa.array(order)).to_pylist()
    groups = np.searchsorted(begins, np.flatnonzero([text is not None for text in texts]), side="right") - 1
    # Row by row: few rows keep anything aside, and fewer of them share a key.
    for group, text in zip(groups.tolist(), (text for text in texts if text is not None), strict=True):
        earlier = kept[group]
        kept[group] = text if earlier is None else merged(earlier.encode(), text.encode()).decode()
    return pa.array(kept, column.type)


def _ranks(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """The order of a column's values as numbers from 1 on; 0 for nulls."""
    encoded = column.combine_chunks().dictionary_encode()
    ranks = np.empty(len(encoded.dictionary) + 1, np.int64)
    ranks[0] = 0
    ranks[pc.sort_indices(encoded.dictionary).to_numpy() + 1] = np.arange(1, len(ranks))
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    found: npt.NDArray[np.int64] = ranks[codes + 1]
    return found


def _running_maximum(ranks: npt.NDArray[np.int64], codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Of each row the highest rank so far among the rows of its code. Rows of a code lie together."""
    group = np.cumsum(np.diff(codes, prepend=codes[0]) != 0)
    lift = group * (ranks.max() + 1)
    lifted: npt.NDArray[np.int64] = np.maximum.accumulate(ranks + lift) - lift
    return lifted
