"""How often, and for how long, a request is sent again."""

from __future__ import annotations

from typing import Self

from pydantic import ConfigDict, Field, model_validator

from penstock.config.component import ComponentConfig
from penstock.config.value_types.quantities import Duration
from penstock.sessions.retry_schedule import RetrySchedule


class RetryOptions(ComponentConfig):
    """Pauses grow from ``initial`` by ``factor`` up to ``max``; each is longer or shorter by up to the share
    ``jitter``, at random."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    initial: Duration = Field(default=5.0, gt=0, description="The pause after the first failure.")
    factor: float = Field(default=1.5, ge=1, le=10, description="How much longer each pause is than the one before.")
    jitter: float = Field(default=0.5, ge=0, lt=1, description="By which share a pause may be longer or shorter.")
    max: Duration = Field(default=30.0, gt=0, description="The longest pause.")
    for_: Duration = Field(
        default=300.0, gt=0, alias="for", description="How long a request is sent again before it counts as not taken."
    )

    @model_validator(mode="after")
    def _grows(self) -> Self:
        if self.max < self.initial:
            raise ValueError("max is shorter than initial; the first pause would be longer than the longest")
        return self

    @property
    def schedule(self) -> RetrySchedule:
        return RetrySchedule(self.initial, self.factor, self.jitter, self.max, self.for_)
