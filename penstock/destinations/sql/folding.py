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


def folded(batches: Sequence[pa.RecordBatch], key: Sequence[str], version: str | None) -> list[pa.RecordBatch]:
    """The batches with every key once. Their schemas may differ; each has the key, without nulls."""
    if not batches:
        return []
    codes = _codes([pa.chunked_array([batch.column(name) for batch in batches]) for name in key])
    counts = np.bincount(codes)
    shared = counts[codes] > 1
    if not shared.any():
        return list(batches)
    result: list[pa.RecordBatch] = []
    twins: list[pa.Table] = []
    start = 0
    for batch in batches:
        mask = shared[start : start + batch.num_rows]
        start += batch.num_rows
        if not mask.any():
            result.append(batch)
            continue
        result.append(batch.filter(pa.array(~mask)))
        twins.append(pa.table(batch.filter(pa.array(mask))))
    together = pa.concat_tables(twins, promote_options="permissive")
    result += _last_values(together, codes[shared], version).to_batches()
    return [batch for batch in result if batch.num_rows]


def _codes(columns: Sequence[pa.ChunkedArray]) -> npt.NDArray[np.int64]:
    """A number per row; equal keys have equal numbers."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        encoded = column.combine_chunks().dictionary_encode()
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
