"""Options of the destination ``stdout``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.config.component import DestinationConfig


class StdoutConfig(DestinationConfig):
    type: Literal["stdout"] = Field(default="stdout", description="Selects this destination.")
    format: Literal["data", "record"] = Field(
        default="data",
        description="What a line holds: `data` is the record's data as it is; `record` is an object that also has its"
        " partition, offset, timestamp, namespace, op, mode, key and headers.",
    )
