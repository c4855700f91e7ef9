"""Options of the step ``skip``."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from penstock.config.component import StepConfig
from penstock.steps.expression.text import ExpressionText


class SkipConfig(StepConfig):
    """A condition."""

    main_option: ClassVar[str | None] = "condition"

    condition: ExpressionText = Field(
        description="SQL condition over the data's fields, in Spark's dialect: `price = 0 or test is true`.",
    )
