"""Options of the step ``set``."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from penstock.config.component import StepConfig
from penstock.steps.expression.expression_text import ExpressionText
from penstock.steps.fields import FieldPath


class SetConfig(StepConfig):
    """Fields and how to compute them."""

    main_option: ClassVar[str | None] = "fields"
    bare_map: ClassVar[bool] = True

    fields: dict[FieldPath, ExpressionText] = Field(
        min_length=1,
        description="Path to SQL expression over the data's fields: `total: price * quantity`. They are set in order.",
    )
