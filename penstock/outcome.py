"""What becomes of the rows of a batch, in a step as in a stager: kept, skipped, failed, added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import RouteError

FAILURE_SCHEMA: pa.Schema = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("item", pa.int64(), nullable=False),
        pa.field("code", pa.string(), nullable=False),
        pa.field("message", pa.string(), nullable=False),
    ]
)
"""Which item failed and why. The step's name is added by the chain; the original bytes by the engine."""

PLACE_SCHEMA: pa.Schema = pa.schema([FAILURE_SCHEMA.field(name) for name in ("partition", "offset", "item")])
PLACE_COLUMNS: list[str] = PLACE_SCHEMA.names
"""They name a row: the place of its record in the log, and which item of the record it is."""

PLACES_PER_PARTITION = 1 << 48

# Arrow converts Python lists with the help of pandas, which takes longer to import than most CLI verbs run.
NO_FAILURES: pa.RecordBatch = pa.RecordBatch.from_arrays(
    [pa.nulls(0, each.type) for each in FAILURE_SCHEMA], schema=FAILURE_SCHEMA
)


@dataclass(frozen=True)
class Outcome:
    """What became of one batch in one step."""

    kept: pa.RecordBatch
    skipped: int = 0
    failures: pa.RecordBatch = field(default_factory=lambda: NO_FAILURES)
    added: int = 0
    """Rows that one row of the batch became, beyond the first."""


def check_count(step: str, given: int, accounted: int) -> None:
    """Refuse what a step made of its rows if one is lost or invented: that is a bug in the step."""
    if given != accounted:
        raise RouteError(
            "PEN-STP-001",
            f"step '{step}' was given {given} records and accounts for {accounted}.",
            "The batch is not delivered. This is a defect of the step; please report it to its author.",
        )


def place_key(batch: pa.RecordBatch) -> pa.Array:
    """One number per row, made of the record's partition and offset: unique in the log."""
    high = pc.multiply(pc.cast(batch.column("partition"), pa.int64()), PLACES_PER_PARTITION)
    return pc.add(high, batch.column("offset"))


def failures_of(rows: pa.RecordBatch, code: str, message: str | pa.StringArray) -> pa.RecordBatch:
    """A failure for every row, all of one code; with one message for all, or one for each."""
    codes = pa.repeat(pa.scalar(code), rows.num_rows)
    messages = pa.repeat(pa.scalar(message), rows.num_rows) if isinstance(message, str) else message
    places = [rows.column(name) for name in PLACE_COLUMNS]
    return pa.RecordBatch.from_arrays([*places, codes, messages], schema=FAILURE_SCHEMA)


def failure_batch(rows: Sequence[Sequence[object]]) -> pa.RecordBatch:
    """The failures with these values of ``FAILURE_SCHEMA``."""
    if not rows:
        return NO_FAILURES
    columns = zip(zip(*rows, strict=True), FAILURE_SCHEMA.types, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(list(column), kind) for column, kind in columns], schema=FAILURE_SCHEMA)


def concat_failures(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(batches) if batches else NO_FAILURES
