"""An item: a pointer into the log, and the few numbers that a decision needs. Never the data itself."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

ITEM = np.dtype(
    [
        ("high", "<u8"),
        ("low", "<u8"),
        ("offset", "<i8"),
        ("time", "<i8"),
        ("order", "<i8"),
        ("partition", "<i4"),
        ("item", "<i8"),
        ("bits", "<u4"),
    ]
)
"""An item: its key's hash, its pointer, its time (µs), its stamp, which gives the order of the log over all partitions,
and what a step knows of it."""

MADE = np.uint32(1 << 27)
"""The bit of a released item that no record has: its step has made it."""

UNTIMED = 2**62
"""The time of an item that waits for the next tick to give it one."""

KEY = np.dtype([("high", "<u8"), ("low", "<u8")])

Items = npt.NDArray[np.void]
"""Rows of ``ITEM``. Some are chosen by ``take`` and ``compress``: an index takes ten times as long, because NumPy then
copies every row column by column."""
Keys = npt.NDArray[np.void]
"""Rows of ``KEY``."""


def sorted_by_log(items: Items) -> npt.NDArray[np.int64]:
    """The places of items in the order of the log."""
    return np.lexsort([np.ascontiguousarray(items[name]) for name in ("item", "offset", "partition", "order")])


def sorted_by_key(items: Items) -> npt.NDArray[np.int64]:
    """The places of items by key, each in the order of the log."""
    in_order = sorted_by_log(items)
    high, low = items["high"][in_order], items["low"][in_order]
    # Keys are hashes: few share their first half, and sorting by one number is several times as fast.
    by_half = np.argsort(high, kind="stable")
    repeated = high[by_half][1:] == high[by_half][:-1]
    if repeated.any() and (low[by_half][1:] != low[by_half][:-1])[repeated].any():
        by_half = np.lexsort((low, high))
    return in_order[by_half]
