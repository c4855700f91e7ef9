"""Options of the source ``spool``. Imports nothing heavy: ``penstock validate`` reads it."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from penstock.config.component import SourceConfig
from penstock.config.value_types.config_paths import LocalPath
from penstock.config.value_types.quantities import Duration


class SpoolConfig(SourceConfig):
    type: Literal["spool"] = Field(default="spool", description="Selects this source.")
    path: LocalPath = Field(description="The folder. What is renamed into it as `*.ndjson` is taken, by name.")
    poll: Duration = Field(default=1.0, gt=0, description="How often the folder is looked at.")

    bounded: ClassVar[bool] = True
