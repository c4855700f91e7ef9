"""Options of the destination ``null``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.config.component import DestinationConfig


class NullConfig(DestinationConfig):
    type: Literal["null"] = Field(default="null", description="Selects this destination.")
