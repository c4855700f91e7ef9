"""What a batch has staged, as one number: a batch that is tried again is the same if its number is.

A sum over its rows, in whatever order tasks stage them: which items they are, and how many go to each table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.outcome import PLACE_COLUMNS

_MODULUS = 2**64
_SPREAD = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
"""Odd numbers, one for each column of a place."""


def digest_of_places(rows: pa.RecordBatch) -> int:
    """``rows`` have the columns of places, and perhaps others."""
    mixed = np.zeros(rows.num_rows, np.uint64)
    for name, spread in zip(PLACE_COLUMNS, _SPREAD, strict=True):
        mixed += rows.column(name).to_numpy().astype(np.int64).view(np.uint64) * np.uint64(spread)
        mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(_SPREAD[0])
    mixed ^= mixed >> np.uint64(32)
    return int(mixed.sum(dtype=np.uint64))


def digest_of_tables(rows: Mapping[str, int]) -> int:
    """``rows``: how many rows each table gets."""
    names = {table: int.from_bytes(hashlib.blake2b(table.encode(), digest_size=8).digest()) for table in rows}
    return add_digests(*(names[table] * count for table, count in rows.items()))


def add_digests(*digests: int) -> int:
    return sum(digests) % _MODULUS
