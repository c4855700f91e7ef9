"""Options of the destination ``sqlite``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.config.component import DestinationConfig
from penstock.config.value_types.config_paths import LocalPath


class SqliteConfig(DestinationConfig):
    type: Literal["sqlite"] = Field(default="sqlite", description="Selects this destination.")
    path: LocalPath = Field(description="The database file; it is made if it is not there.")
    table: str = Field(
        default="events", pattern="^[a-z][a-z0-9_]*$", description="The table; it is made if it is not there."
    )
