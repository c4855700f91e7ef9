"""Options of the step ``dedupe``."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from penstock.config.component import StepConfig
from penstock.config.value_types.quantities import CENTURY, Duration
from penstock.steps.fields import KeyFields


class DedupeConfig(StepConfig):
    """A key and a window."""

    holds: ClassVar[bool] = True

    key: KeyFields = Field(
        description="The fields that tell one record from another: one, or a list. Records that lack one of them, or"
        " have null there, go on.",
    )
    window: Duration = Field(
        gt=0,
        le=CENTURY,
        description="A record is skipped if the last one with its key is not further away than this, by the times of"
        " the records in the log. At most 36525d.",
    )
