"""Options of the step ``flatten_fields``."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from penstock.config.component import StepConfig


class FlattenFieldsConfig(StepConfig):
    """How names are put together, and how far down."""

    main_option: ClassVar[str | None] = "separator"

    separator: str = Field(
        default="_", min_length=1, max_length=16, description="What stands between the names: `card_number`."
    )
    depth: int | None = Field(
        default=None, ge=1, description="How many levels of nested objects are dissolved; absent: all."
    )
