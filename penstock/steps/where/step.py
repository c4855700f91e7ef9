"""Keeps the records for which a condition is true and skips the others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.json.find import find
from penstock.steps.contract import ArrowStep, Outcome
from penstock.steps.expression.conversion import to_truths
from penstock.steps.expression.evaluate import evaluate
from penstock.steps.expression.parse import parse
from penstock.steps.expression.tree import fields
from penstock.steps.outcomes import not_json, settle
from penstock.steps.where.config import WhereConfig


class Where(ArrowStep[WhereConfig]):
    """As in SQL, a condition that is null is not true."""

    def __init__(self, config: WhereConfig) -> None:
        super().__init__(config)
        self._condition = parse(config.condition)
        self._paths = fields(self._condition)
        self._places = {path: place for place, path in enumerate(self._paths)}

    def apply(self, batch: pa.RecordBatch) -> Outcome:
        if batch.num_rows == 0:
            return Outcome(batch)
        found = find(batch.column("data"), self._paths)
        truth = to_truths(evaluate(self._condition, batch, found, self._places))
        passes = np.broadcast_to((truth.ints != 0) & ~truth.nulls, found.valid.shape)
        failed = [] if found.valid.all() else [not_json(batch, found.valid, found.broken_at)]
        return settle(batch, passes & found.valid, failed)
