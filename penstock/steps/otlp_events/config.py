"""Options of the step ``otlp_events``."""

from __future__ import annotations

from pydantic import Field

from penstock.config.component import StepConfig
from penstock.config.value_types.quantities import ByteSize


class OtlpEventsConfig(StepConfig):
    """How a log record or a span is written as an event."""

    resource: bool = Field(default=False, description="Whether events of logs have the attributes of their resource.")
    resource_prefix: str = Field(default="resource.attributes.", description="What their names begin with.")
    scope: bool = Field(default=True, description="Whether events of logs have the name and attributes of their scope.")
    scope_prefix: str = Field(default="scope.attributes.", description="What the names of those attributes begin with.")
    separator: str = Field(default=".", description="What stands between the names of a nested attribute.")
    suffix: str = Field(
        default="_", min_length=1, description="What the name of an attribute gets whose name another one has already."
    )
    decompose_body: bool = Field(
        default=False, description="Whether a body that is a map becomes attributes, beside its text in `message`."
    )
    body_prefix: str = Field(default="body.map.", description="What the names of those attributes begin with.")
    server_host: str | None = Field(
        default=None, min_length=1, description="The host of what names none; by default the destination's."
    )
    max_bytes: ByteSize = Field(
        default=64 * 2**20, gt=0, le=2**30, description="Most bytes that one request may become; a larger one fails."
    )
