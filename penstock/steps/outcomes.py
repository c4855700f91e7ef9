"""How steps over JSON account for a batch: rows that are not JSON objects fail, with the byte that says so."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.json.document_problems import problem
from penstock.json.documents import documents
from penstock.outcome import NO_FAILURES, PLACE_COLUMNS, Outcome, failures_of

NOT_JSON = "not_json"
PATH_BLOCKED = "path_blocked"

Flags = npt.NDArray[np.bool_]


def with_data(batch: pa.RecordBatch, data: pa.Array) -> pa.RecordBatch:
    """The batch with other documents in its rows."""
    place = batch.schema.get_field_index("data")
    return batch.set_column(place, batch.schema.field(place), data)


def failures(batch: pa.RecordBatch, rows: npt.NDArray[np.int64], code: str, messages: Sequence[str]) -> pa.RecordBatch:
    """The failures of some rows of a batch, all of one code."""
    if len(rows) == 0:
        return NO_FAILURES
    chosen = batch.select(PLACE_COLUMNS).take(pa.array(rows))
    return failures_of(chosen, code, pa.array(messages, pa.string()))


def not_json(batch: pa.RecordBatch, valid: Flags, broken_at: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """The failures of the rows that are not ``valid``; ``broken_at`` is where in the data's buffer each one breaks."""
    rows = np.flatnonzero(~valid)
    docs = documents(batch.column("data"))
    messages = [problem(docs, row, int(broken_at[row])).message for row in rows.tolist()]
    return failures(batch, rows, NOT_JSON, messages)


def settle(batch: pa.RecordBatch, kept: Flags, failed: Sequence[pa.RecordBatch]) -> Outcome:
    """The outcome of ``batch``: keeps the ``kept`` rows, fails those in ``failed``, and skips the rest."""
    named = [some for some in failed if some.num_rows]
    together = pa.concat_batches(named) if named else NO_FAILURES
    remaining = batch if kept.all() else batch.filter(pa.array(kept))
    return Outcome(remaining, batch.num_rows - remaining.num_rows - together.num_rows, together)


def rewritten(batch: pa.RecordBatch, data: pa.Array, valid: Flags, broken_at: npt.NDArray[np.int64]) -> Outcome:
    """The outcome of a step that gives every JSON object of the batch new bytes."""
    if valid.all():
        return Outcome(with_data(batch, data))
    return settle(with_data(batch, data), valid, [not_json(batch, valid, broken_at)])
