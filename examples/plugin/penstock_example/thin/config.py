"""Options of the step ``thin``."""

from __future__ import annotations

from pydantic import Field

from penstock.config.component import StepConfig


class ThinConfig(StepConfig):
    by: str = Field(min_length=1, description="The field whose value decides. Records without it are kept.")
    share: float = Field(ge=0, le=1, description="How much is kept: `0.1` is a tenth of the values.")
