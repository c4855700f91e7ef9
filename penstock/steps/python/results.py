"""Compares what a user's function returned with what it was given: which rows are kept, and of which records."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.outcome import NO_FAILURES, Outcome, place_key
from penstock.record import RECORD_SCHEMA, Mode, Op
from penstock.steps.outcomes import failures

BAD_RESULT = "bad_result"

_WORDS = {"op": pa.array([op.value for op in Op]), "mode": pa.array([mode.value for mode in Mode])}
"""Columns that have one of a few words."""

_REQUIRED = [field.name for field in RECORD_SCHEMA if not field.nullable]


def accounted(given: pa.RecordBatch, result: pa.RecordBatch) -> Outcome:
    """What came back, in the order of what was given; rows that are missing were skipped, further ones added, and rows
    that are no records have failed. Raises ``TypeError`` for a row of a record that was not given."""
    records, place, counts = np.unique(place_key(given).to_numpy(), return_index=True, return_counts=True)
    came = place_key(result).to_numpy(zero_copy_only=False)
    which = np.searchsorted(records, came)
    known = (which < len(records)) & (records[np.minimum(which, len(records) - 1)] == came)
    if not known.all():
        raise TypeError("the function returned a row with a partition and offset that it was not given")
    difference = np.bincount(which, minlength=len(records)) - counts
    order = np.argsort(place[which], kind="stable")
    in_order = result if (order == np.arange(len(order))).all() else result.take(pa.array(order))
    skipped, added = -difference[difference < 0].sum(), difference[difference > 0].sum()
    sound, failed = _sorted_out(in_order)
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
