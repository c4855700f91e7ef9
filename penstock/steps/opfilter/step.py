"""Keeps the records of certain ops and skips the others, without a look at their data."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.outcome import Outcome
from penstock.steps.contract import ArrowStep
from penstock.steps.opfilter.config import OpfilterConfig, OpName


class Opfilter(ArrowStep[OpfilterConfig]):
    def __init__(self, config: OpfilterConfig) -> None:
        super().__init__(config)
        self._passing = [str(op) for op in config.allow or OpName if op not in config.deny]

    def apply(self, batch: pa.RecordBatch) -> Outcome:
        kept = batch.filter(pc.is_in(batch.column("op"), value_set=pa.array(self._passing, pa.string())))
        return Outcome(kept, batch.num_rows - kept.num_rows)
