"""When sources refuse what comes, because a destination does not take what it is given."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from penstock.config.component import ComponentConfig, IntakeLimits
from penstock.config.value_types.quantities import ByteSize, Duration


class RejectOptions(ComponentConfig):
    """Sources answer 503 with Retry-After while something fails, and one of these limits is reached."""

    age: Duration = Field(default=60.0, ge=0, description="For how long something has failed.")
    bytes: ByteSize | None = Field(
        default=None, gt=0, description="How much of the log waits for the route; by default no limit."
    )
    retry_after: Duration = Field(default=10.0, ge=1, description="What senders are told to wait.")

    @property
    def limits(self) -> IntakeLimits:
        return IntakeLimits(self.age, self.bytes, self.retry_after)


def _spelled_out(value: Any) -> Any:
    return {True: {}, False: None}.get(value, value) if isinstance(value, bool) else value


Reject = Annotated[
    RejectOptions | None,
    BeforeValidator(_spelled_out),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, RejectOptions.model_json_schema(), {"type": "null"}]}),
]
"""``true`` for the defaults, ``false`` for none."""
