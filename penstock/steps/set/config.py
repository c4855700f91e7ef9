"""Options of the step ``set``."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, model_validator

from penstock.config.component import StepConfig
from penstock.steps.expression.expression_text import ExpressionText
from penstock.steps.fields import FieldPath, lifted


class SetConfig(StepConfig):
    """Fields and how to compute them."""

    main_option: ClassVar[str | None] = "fields"

    fields: dict[FieldPath, ExpressionText] = Field(
        min_length=1,
        description="Path to SQL expression over the data's fields: `total: price * quantity`. They are set in order.",
    )

    @model_validator(mode="before")
    @classmethod
    def _lift_bare_map(cls, value: Any) -> Any:
        return lifted(value)
