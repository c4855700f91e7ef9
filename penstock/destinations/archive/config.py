"""Options of the destination ``archive``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.config.component import DestinationConfig
from penstock.config.paths import LocalPath


class ArchiveConfig(DestinationConfig):
    type: Literal["archive"] = Field(default="archive", description="Selects this destination.")
    path: LocalPath = Field(description="Folder that the days' folders are in; made if it is missing.")
