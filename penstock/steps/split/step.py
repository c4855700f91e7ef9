"""Makes one row of each element of an array; the rows of a record share its place."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.json.arrow_text import arrow_array, quoted
from penstock.json.containers import count_elements
from penstock.json.find import Found, Spans, find
from penstock.json.paths import Path, format_path
from penstock.json.tokens import ABSENT, ARRAY, NULL
from penstock.outcome import Outcome
from penstock.steps.contract import ArrowStep, TooMuch
from penstock.steps.fields import field_path
from penstock.steps.outcomes import Flags, failures, not_json, with_data
from penstock.steps.split.config import Empty, Others, SplitConfig
from penstock.steps.split.elements import documents_around

NOT_ARRAY = "not_array"
TOO_LARGE = "too_large"
MOST_BYTES = 2**30
"""What a batch may become; an Arrow array of bytes ends at twice that."""


class Split(ArrowStep[SplitConfig]):
    def __init__(self, config: SplitConfig) -> None:
        super().__init__(config)
        self._path = field_path(config.field)

    def apply(self, batch: pa.RecordBatch) -> Outcome:
        if batch.num_rows == 0:
            return Outcome(batch)
        found = find(batch.column("data"), [self._path])
        kind = found.kind[:, 0]
        arrays: Flags = found.valid & (kind == ARRAY)
        starts, ends = (np.ascontiguousarray(spans[:, 0]) for spans in (found.value_start, found.value_end))
        counts = count_elements(found.buffer, starts, ends, arrays)
        other: Flags = found.valid & ~arrays & (kind != ABSENT) & (kind != NULL)
        sizes = self._sizes(found, counts)
        large: Flags = (sizes > self.config.max_bytes) & (counts > 1)
        kept: Flags = found.valid & ~other & ~large
        if self.config.empty is Empty.SKIP:
            kept &= counts > 0
        if sizes[kept].sum() > MOST_BYTES and kept.sum() > 1:
            raise TooMuch
        failed = self._failures(batch, found, other, large, sizes)
        rows = np.flatnonzero(kept)
        made = np.repeat(rows, np.maximum(counts[rows], 1))
        result = batch.take(pa.array(made)) if len(made) != batch.num_rows or len(rows) != batch.num_rows else batch
        result = with_data(result, self._documents(found, rows, counts[rows]))
        skipped = batch.num_rows - len(rows) - failed.num_rows
        return Outcome(result, skipped, failed, len(made) - len(rows))

    def _sizes(self, found: Found, counts: Spans) -> Spans:
        """The bytes that each record becomes, or a little more."""
        whole = np.diff(found.offsets)
        array = found.value_end[:, 0] - found.value_start[:, 0]
        around = (
            whole - array
            if self.config.others is Others.KEEP
            else np.full(len(whole), len(b"".join(_frame(self._path))))
        )
        return np.where(counts > 0, around * counts + array, whole)

    def _failures(
        self, batch: pa.RecordBatch, found: Found, other: Flags, large: Flags, sizes: Spans
    ) -> pa.RecordBatch:
        where = format_path(self._path)
        no_arrays, too_large = np.flatnonzero(other), np.flatnonzero(large)
        limit = self.config.max_bytes
        return pa.concat_batches(
            [
                not_json(batch, found.valid, found.broken_at),
                failures(batch, no_arrays, NOT_ARRAY, [f"what is at {where} is not an array"] * len(no_arrays)),
                failures(
                    batch,
                    too_large,
                    TOO_LARGE,
                    [
                        f"split at {where} it would become {size} bytes, and {limit} are allowed"
                        for size in sizes[too_large]
                    ],
                ),
            ]
        )

    def _documents(self, found: Found, rows: Spans, counts: Spans) -> pa.BinaryArray:
        firsts, lasts = found.offsets[:-1][rows], found.offsets[1:][rows]
        there = counts > 0
        # A record that is not split is copied completely: it stands between two empty texts.
        starts = np.where(there, found.value_start[rows, 0], firsts)
        ends = np.where(there, found.value_end[rows, 0], lasts)
        if self.config.others is Others.KEEP:
            left, right = (found.buffer, firsts, starts), (found.buffer, ends, lasts)
        else:
            none = np.zeros(len(rows), np.int64)
            frame = (np.frombuffer(text, np.uint8) for text in _frame(self._path))
            left, right = ((text, none, np.where(there, len(text), 0)) for text in frame)
        out, offsets = documents_around(found.buffer, starts, ends, counts, left, right)
        return arrow_array(pa.binary(), out, offsets)


def _frame(path: Path) -> tuple[bytes, bytes]:
    """What stands before and after a value in an object that has nothing but it, at a path."""
    return b"".join(b"{" + quoted(key) + b":" for key in path), b"}" * len(path)
