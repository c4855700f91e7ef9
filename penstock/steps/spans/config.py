"""Options of the step ``spans``."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from pydantic import Field

from penstock.config.component import StepConfig
from penstock.config.value_types.quantities import ByteSize
from penstock.otlp.row_times import Times


class Attributes(StrEnum):
    """What attributes are in a row."""

    TEXT = "text"
    OBJECT = "object"


class SpansConfig(StepConfig):
    """How a span is written as JSON."""

    attributes: Attributes = Field(
        default=Attributes.TEXT,
        description="`text`: a JSON object in a string, for one JSON column in a table. `object`: an object, which"
        " steps can look into; a table gets one column for each attribute.",
    )
    times: Times = Field(
        default=Times.MICROSECONDS,
        description="How fine `start_time` and `end_time` are: `microseconds`, or `nanoseconds` for destinations that"
        " have a type `timestamp_ns` or no types.",
    )
    max_bytes: ByteSize = Field(
        default=64 * 2**20, gt=0, le=2**30, description="Most bytes that one request may become; a larger one fails."
    )

    def types_asked(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        if self.times is Times.NANOSECONDS:
            yield ("times",), "timestamp_ns"
