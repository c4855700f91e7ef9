"""Keeps the named members of JSON objects; what is kept stays as it was."""

from __future__ import annotations

import pyarrow as pa

from penstock.json.members import keep_members
from penstock.outcome import Outcome
from penstock.steps.contract import ArrowStep
from penstock.steps.fields import field_path
from penstock.steps.outcomes import rewritten
from penstock.steps.pick.config import PickConfig


class Pick(ArrowStep[PickConfig]):
    """A record that has none of the fields becomes ``{}``; it is not skipped."""

    def __init__(self, config: PickConfig) -> None:
        super().__init__(config)
        self._paths = [field_path(field) for field in config.fields]

    def apply(self, batch: pa.RecordBatch) -> Outcome:
        result = keep_members(batch.column("data"), self._paths)
        return rewritten(batch, result.data, result.valid, result.broken_at)
