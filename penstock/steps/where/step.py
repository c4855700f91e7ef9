"""Keeps the records for which a condition is true and skips the others."""

from __future__ import annotations

import pyarrow as pa

from penstock.outcome import Outcome
from penstock.steps.condition import Condition, Flags, Judged
from penstock.steps.contract import ArrowStep
from penstock.steps.expression.parse import parse
from penstock.steps.outcomes import settle
from penstock.steps.where.config import WhereConfig


class Where(ArrowStep[WhereConfig]):
    """As in SQL, a condition that is null is not true."""

    def __init__(self, config: WhereConfig) -> None:
        super().__init__(config)
        self._condition = Condition(parse(config.condition))

    def apply(self, batch: pa.RecordBatch) -> Outcome:
        if batch.num_rows == 0:
            return Outcome(batch)
        judged = self._condition.judge(batch)
        return settle(batch, self.wants(judged), judged.failed)

    def wants(self, judged: Judged) -> Flags:
        """The records that go on."""
        return judged.valid & judged.true
