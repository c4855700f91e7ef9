"""Options of the step ``pretty``."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from penstock.config.component import StepConfig


class PrettyConfig(StepConfig):
    """How much to show."""

    main_option: ClassVar[str | None] = "per_second"

    per_second: float = Field(
        default=1.0, gt=0, le=1000, description="Most records that each process shows in a second; `0.1`: one in ten."
    )
    max_bytes: int = Field(default=2000, ge=1, description="Of longer data only so many bytes are shown.")
