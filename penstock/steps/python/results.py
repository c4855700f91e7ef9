"""Compares what a user's function returned with what it was given: which rows are kept, and of which records."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.items import ItemKeys, item_keys, number_items
from penstock.outcome import NO_FAILURES, PLACE_COLUMNS, Outcome
from penstock.record import RECORD_SCHEMA, Mode, Op
from penstock.steps.outcomes import failures

BAD_RESULT = "bad_result"

_WORDS = {"op": pa.array([op.value for op in Op]), "mode": pa.array([mode.value for mode in Mode])}
"""Columns that have one of a few words."""

_NOT_GIVEN = "the function returned a row with a partition, offset and item that it was not given"

_REQUIRED = [field.name for field in RECORD_SCHEMA if not field.nullable]


def accounted(given: pa.RecordBatch, result: pa.RecordBatch) -> Outcome:
    """What came back, in the order of what was given; rows that are missing were skipped, further ones added, and rows
    that are no records have failed. Raises ``TypeError`` for a row of an item that was not given."""
    if any(result.column(name).null_count for name in PLACE_COLUMNS):
        raise TypeError(_NOT_GIVEN)
    keys, came = item_keys(ItemKeys.of(given), ItemKeys.of(result))
    items, place, counts = np.unique(keys, return_index=True, return_counts=True)
    which = np.searchsorted(items, came)
    known = (which < len(items)) & (items[np.minimum(which, len(items) - 1)] == came)
    if not known.all():
        raise TypeError(_NOT_GIVEN)
    difference = np.bincount(which, minlength=len(items)) - counts
    order = np.argsort(place[which], kind="stable")
    in_order = result if (order == np.arange(len(order))).all() else result.take(pa.array(order))
    skipped, added = -difference[difference < 0].sum(), difference[difference > 0].sum()
    # Each by itself may be no record.
    sound, failed = _sorted_out(number_items(in_order) if added else in_order)
    return Outcome(sound, int(skipped), failed, int(added))


def _sorted_out(result: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The rows that are records, and the failures of those that are not."""
    sound = pa.repeat(pa.scalar(True), result.num_rows)
    for name in _REQUIRED:
        column = result.column(name)
        # A null is in no set of words.
        fits = pc.is_in(column, value_set=_WORDS[name]) if name in _WORDS else pc.is_valid(column)
        sound = pc.and_(sound, fits)
    if pc.all(sound, min_count=0).as_py():
        return result, NO_FAILURES
    bad = np.flatnonzero(~sound.to_numpy(zero_copy_only=False))
    messages = [_complaint(row) for row in result.select(_REQUIRED).take(pa.array(bad)).to_pylist()]
    return result.filter(sound), failures(result, bad, BAD_RESULT, messages)


def _complaint(row: dict[str, object]) -> str:
    for name, words in _WORDS.items():
        if row[name] not in words.to_pylist():
            return f"the function returned the {name} {row[name]!r}; it must be one of {', '.join(words.to_pylist())}"
    missing = next(name for name in _REQUIRED if row[name] is None)
    return f"the function returned a row without {missing}"
