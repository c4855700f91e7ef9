"""Options of all destinations that send requests by key."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from penstock.config.component import ComponentConfig, IntakeLimits
from penstock.config.value_types.quantities import ByteSize, Duration
from penstock.sessions.retry_schedule import RetrySchedule

DEFAULT_AGE = 60.0
"""Seconds."""


class Packing(StrEnum):
    """How requests are compressed."""

    GZIP = "gzip"
    ZSTD = "zstd"
    NONE = "none"


class OnFailing(StrEnum):
    """What becomes of what was not accepted for as long as it is sent again."""

    WAIT = "wait"
    """It stays in the log, and the route stays on it."""
    DEAD_LETTER = "dead_letter"
    """The request that fails goes to the failed store, and the next one is tried."""


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


class RejectOptions(ComponentConfig):
    """Sources answer 503 with Retry-After while something fails, and one of these limits is reached."""

    age: Duration | None = Field(
        default=None, ge=0, description="For how long something has failed; by default 60 s, if there is no `bytes`."
    )
    bytes: ByteSize | None = Field(
        default=None, gt=0, description="How much of the log waits for the route; by default no limit."
    )
    retry_after: Duration = Field(default=10.0, ge=1, description="What senders are told to wait.")

    @property
    def limits(self) -> IntakeLimits:
        age = DEFAULT_AGE if self.age is None and self.bytes is None else self.age
        return IntakeLimits(age, self.bytes, self.retry_after)


def _spelled_out(value: Any) -> Any:
    return {True: {}, False: None}.get(value, value) if isinstance(value, bool) else value


Reject = Annotated[
    RejectOptions | None,
    BeforeValidator(_spelled_out),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, RejectOptions.model_json_schema(), {"type": "null"}]}),
]
"""``true`` for the defaults, ``false`` for none."""
