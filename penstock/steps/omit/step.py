"""Takes members out of JSON objects; every other byte stays as it was."""

from __future__ import annotations

import pyarrow as pa

from penstock.json.members import drop_members
from penstock.outcome import Outcome
from penstock.steps.contract import ArrowStep
from penstock.steps.fields import field_path
from penstock.steps.omit.config import OmitConfig
from penstock.steps.outcomes import rewritten


class Omit(ArrowStep[OmitConfig]):
    """Ignores a field that is missing, or whose path leads through something that is not an object."""

    edit = staticmethod(drop_members)

    def __init__(self, config: OmitConfig) -> None:
        super().__init__(config)
        self._paths = [field_path(field) for field in config.fields]

    def apply(self, batch: pa.RecordBatch) -> Outcome:
        result = self.edit(batch.column("data"), self._paths)
        return rewritten(batch, result.data, result.valid, result.broken_at)
