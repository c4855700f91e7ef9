"""Options of the step ``opfilter``."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Self

from pydantic import Field, model_validator

from penstock.config.component import StepConfig


class OpName(StrEnum):
    """The ops that a record can have, as ``penstock.record`` has them; a config must load without Arrow."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    COMMAND = "command"
    NOOP = "noop"


class OpfilterConfig(StepConfig):
    """Ops to let pass, or to hold back."""

    main_option: ClassVar[str | None] = "allow"

    allow: tuple[OpName, ...] | None = Field(
        default=None, min_length=1, description="Ops that pass, such as `[insert, update]`; absent: all."
    )
    deny: tuple[OpName, ...] = Field(default=(), description="Ops that do not pass, such as `[delete]`.")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.allow is None and not self.deny:
            raise ValueError("name the ops to `allow` or to `deny`")
        both = [op for op in self.allow or () if op in self.deny]
        if both:
            raise ValueError(f"'{both[0]}' is both allowed and denied")
        return self
