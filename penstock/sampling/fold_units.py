"""The spans of a batch by trace: what a decision looks at is one row per trace, a unit.

Units stand in the order in which their first spans came; so do the spans of each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.compiled import borrowing, compiled
from penstock.holding.item import ITEM, Items, sorted_by_log
from penstock.sampling.decision_names import MOST_ORIGINS
from penstock.sampling.span_item import DECIDED_NOT_SAMPLED, DECIDED_SAMPLED, NO_THRESHOLD, SPAN_ITEM

Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

UNIT = np.dtype(
    [
        ("high", "<u8"),
        ("low", "<u8"),
        ("mask", "<u8"),
        ("start", "<u8"),
        ("end", "<u8"),
        ("threshold", "<u8"),
        ("time", "<i8"),
        ("oldest", "<i8"),
        ("bytes", "<i8"),
        ("count", "<i8"),
        ("decisions", "<i8"),
        ("decided", "<i8"),
        ("decided_by", "<i8"),
        ("decided_weight", "<f8"),
        ("origin", "<i8"),
        ("begin", "<i8"),
        ("move", "<i8"),
    ]
)
"""The new spans of a trace: what they meet, earliest start and latest end (ns; 0 is none), the smallest threshold, the
time of the first and the lowest stamp, bytes and number. Decision spans are counted apart: how many, and what the first
of them says: ``NOT_DECIDED``, ``SAYS_SAMPLED`` or ``SAYS_NOT_SAMPLED``, by which policy and with which weight.
``origin`` is the number of where the first span is from. ``begin`` is where its spans begin among those of all units,
and ``move`` what made them wait (``journal.py``), or -1."""

NOT_DECIDED, SAYS_SAMPLED, SAYS_NOT_SAMPLED = range(3)

_ORIGIN = np.uint32(MOST_ORIGINS - 1)
_ITEM_OF_SPAN = SPAN_ITEM[list(ITEM.names or ())]
"""What an item has, where it stands in a span."""


class Units(NamedTuple):
    units: npt.NDArray[np.void]
    """Rows of ``UNIT``."""
    rows: Numbers
    """The places of the spans in the batch, unit by unit, without decision spans."""


class _Columns(NamedTuple):
    high: Words
    low: Words
    time: Numbers
    order: Numbers
    bits: npt.NDArray[np.uint32]
    mask: Words
    start: Words
    end: Words
    size: npt.NDArray[np.uint32]
    threshold: Words
    weight: npt.NDArray[np.float64]
    """What ``start`` is of a decision span."""


def in_log_order(spans: Items) -> Items:
    """The spans of a batch in the order of the log."""
    order = spans["order"]
    if (order[1:] < order[:-1]).any():
        # Spans come as a few rows that are each in order: a stable sort merges these in no time.
        spans = spans.take(np.argsort(order, kind="stable"))
    if _is_in_order(spans):
        return spans
    return spans.take(sorted_by_log(spans))


def fold(spans: Items) -> Units:
    """The units of spans that are in the order of the log."""
    # Copied, also where there is but one: compiled code is made for arrays that are aligned and can be written to.
    columns = {name: np.array(spans[name]) for name in _Columns._fields[:-1]}
    found = _Columns(**columns, weight=columns["start"].view(np.float64))
    units = np.zeros(len(spans), UNIT)
    unit_of = np.empty(len(spans), np.int64)
    count = _fold(found, units, unit_of, np.full(1 << (2 * len(spans)).bit_length(), -1, np.int32))
    rows = np.empty(len(spans), np.int64)
    return Units(units[:count], rows[: _group(units[:count], unit_of, rows)])


def items_of(spans: Items) -> Items:
    """The pointers of spans."""
    return np.ascontiguousarray(spans).view(_ITEM_OF_SPAN)


@borrowing
def _is_in_order(spans: Items) -> bool:
    for row in range(1, len(spans)):
        before, span = spans[row - 1], spans[row]
        if span["order"] != before["order"]:
            if span["order"] < before["order"]:
                return False
        elif span["partition"] != before["partition"]:
            if span["partition"] < before["partition"]:
                return False
        elif span["offset"] != before["offset"]:
            if span["offset"] < before["offset"]:
                return False
        elif span["item"] < before["item"]:
            return False
    return True


@borrowing
def _fold(spans: _Columns, units: npt.NDArray[np.void], unit_of: Numbers, buckets: npt.NDArray[np.int32]) -> int:
    count = 0
    mask = np.uint64(len(buckets) - 1)
    for row in range(len(spans.high)):
        high, low = spans.high[row], spans.low[row]
        bucket = low & mask
        number = buckets[bucket]
        while number >= 0 and (units[number]["low"] != low or units[number]["high"] != high):
            bucket = (bucket + np.uint64(1)) & mask
            number = buckets[bucket]
        if number < 0:
            number = count
            buckets[bucket] = count
            count += 1
            units[number]["high"] = high
            units[number]["low"] = low
            units[number]["threshold"] = NO_THRESHOLD
        unit_of[row] = number
        unit = units[number]
        if spans.mask[row] & (DECIDED_SAMPLED | DECIDED_NOT_SAMPLED) != np.uint64(0):
            if unit["decisions"] == 0:
                says = spans.mask[row] & DECIDED_SAMPLED != np.uint64(0)
                unit["decided"] = SAYS_SAMPLED if says else SAYS_NOT_SAMPLED
                unit["decided_by"] = np.int64(spans.end[row])
                unit["decided_weight"] = spans.weight[row]
            unit["decisions"] += 1
            unit_of[row] = -1
            continue
        if unit["count"] == 0:
            unit["time"] = spans.time[row]
            unit["oldest"] = spans.order[row]
            unit["origin"] = np.int64(spans.bits[row] & _ORIGIN)
        unit["count"] += 1
        unit["bytes"] += np.int64(spans.size[row])
        unit["mask"] |= spans.mask[row]
        unit["threshold"] = min(unit["threshold"], spans.threshold[row])
        start = spans.start[row]
        if start != np.uint64(0) and (unit["start"] == np.uint64(0) or start < unit["start"]):
            unit["start"] = start
        unit["end"] = max(unit["end"], spans.end[row])
    return count


@compiled
def _group(units: npt.NDArray[np.void], unit_of: Numbers, rows: Numbers) -> int:
    """Put the places of the spans of each unit side by side; returns how many there are."""
    free = np.empty(len(units), np.int64)
    at = 0
    for number in range(len(units)):
        units[number]["begin"] = free[number] = at
        units[number]["move"] = -1
        at += units[number]["count"]
    for row in range(len(unit_of)):
        number = unit_of[row]
        if number >= 0:
            rows[free[number]] = row
            free[number] += 1
    return at
