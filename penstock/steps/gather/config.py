"""Options of the step ``gather``."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from penstock.config.component import StepConfig
from penstock.config.value_types.quantities import CENTURY, Duration
from penstock.steps.expression.expression_text import ConditionText
from penstock.steps.fields import KeyFields


class GatherConfig(StepConfig):
    """A key, what closes it, and how long to wait for that."""

    holds: ClassVar[bool] = True

    key: KeyFields = Field(
        description="The fields whose values a group shares: one, or a list. Records that lack one of them, or have"
        " null there, go on at once.",
    )
    until: ConditionText = Field(
        description="SQL condition over the data's fields, in Spark's dialect: a record for which it is true closes its"
        " group.",
    )
    at_most: Duration = Field(
        ge=0.1, le=CENTURY, description="After this time a group goes on as it is, closed or not. At most 36525d.",
    )  # fmt: skip
