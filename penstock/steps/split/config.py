"""Options of the step ``split``."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from penstock.config.component import StepConfig
from penstock.config.value_types.quantities import ByteSize
from penstock.steps.fields import FieldPath


class Others(StrEnum):
    """What happens to the fields beside the array."""

    KEEP = "keep"
    DROP = "drop"


class Empty(StrEnum):
    """What happens to a record without elements."""

    KEEP = "keep"
    SKIP = "skip"


class SplitConfig(StepConfig):
    """An array, and what happens to what is not in it."""

    main_option: ClassVar[str | None] = "field"

    field: FieldPath = Field(description="The array: `items`, `order.items` or `/order/items`.")
    others: Others = Field(
        default=Others.KEEP, description="The fields beside the array: `keep` them in each record, or `drop` them."
    )
    empty: Empty = Field(
        default=Empty.KEEP,
        description="A record whose array is empty, null or missing: `keep` it as it is, or `skip` it.",
    )
    max_bytes: ByteSize = Field(
        default=64 * 2**20, gt=0, le=2**30, description="Most bytes that one record may become; a larger one fails."
    )
