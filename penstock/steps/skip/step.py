"""Skips the records for which a condition is true and keeps the others."""

from __future__ import annotations

import pyarrow as pa

from penstock.steps.condition import Condition
from penstock.steps.contract import ArrowStep, Outcome
from penstock.steps.expression.parse import parse
from penstock.steps.outcomes import settle
from penstock.steps.skip.config import SkipConfig


class Skip(ArrowStep[SkipConfig]):
    """A condition that is null is not true: what it cannot judge goes on."""

    def __init__(self, config: SkipConfig) -> None:
        super().__init__(config)
        self._condition = Condition(parse(config.condition))

    def apply(self, batch: pa.RecordBatch) -> Outcome:
        if batch.num_rows == 0:
            return Outcome(batch)
        judged = self._condition.judge(batch)
        return settle(batch, judged.valid & ~judged.true, judged.failed)
