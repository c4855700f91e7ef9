"""Options of the step ``where``."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from penstock.config.component import StepConfig
from penstock.steps.expression.expression_text import ConditionText


class WhereConfig(StepConfig):
    """A condition."""

    main_option: ClassVar[str | None] = "condition"

    condition: ConditionText = Field(
        description="SQL condition over the data's fields, in Spark's dialect: `price > 10 and country <> 'DE'`.",
    )
