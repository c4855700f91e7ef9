"""Makes nested objects one level of fields; a record in which two would share a name fails."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.outcome import Outcome
from penstock.steps.contract import ArrowStep
from penstock.steps.flatten_fields.config import FlattenFieldsConfig
from penstock.steps.flatten_fields.flattening import clash, flattened
from penstock.steps.outcomes import failures, not_json, settle, with_data

NAME_TAKEN = "name_taken"


class FlattenFields(ArrowStep[FlattenFieldsConfig]):
    def apply(self, batch: pa.RecordBatch) -> Outcome:
        separator, depth = self.config.separator, self.config.depth
        result = flattened(batch.column("data"), separator, depth)
        flat = with_data(batch, result.data)
        if result.valid.all() and not result.doubtful.any():
            return Outcome(flat)
        kept = result.valid.copy()
        rows, messages = [], []
        for row in np.flatnonzero(result.doubtful).tolist():
            try:
                name = clash(batch.column("data")[row].as_py(), separator, depth)
                problem = None if name is None else f"two fields would both be called '{name}'"
            except RecursionError:
                problem = "nested too deeply to tell whether two fields get the same name"
            if problem is not None:
                kept[row] = False
                rows.append(row)
                messages.append(problem)
        failed = [
            not_json(batch, result.valid, result.broken_at),
            failures(batch, np.array(rows, np.int64), NAME_TAKEN, messages),
        ]
        return settle(flat, kept, failed)
