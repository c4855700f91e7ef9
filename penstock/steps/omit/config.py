"""Options of the step ``omit``."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from penstock.config.component import StepConfig
from penstock.steps.fields import FieldPath


class OmitConfig(StepConfig):
    """Fields to take out."""

    main_option: ClassVar[str | None] = "fields"

    fields: tuple[FieldPath, ...] = Field(
        min_length=1,
        description="Fields to take out: `ssn`, `card.number` or `/card/number`; `a\\.b` is a name with a dot.",
    )
