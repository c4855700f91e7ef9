"""Options of the step ``pick``."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from penstock.config.component import StepConfig
from penstock.steps.fields import FieldPath


class PickConfig(StepConfig):
    """Fields to keep."""

    main_option: ClassVar[str | None] = "fields"

    fields: tuple[FieldPath, ...] = Field(
        min_length=1,
        description="Fields to keep: `id`, `user.name` or `/user/name`; `a\\.b` is a name with a dot.",
    )
