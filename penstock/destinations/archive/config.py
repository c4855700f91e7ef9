"""Options of the destination ``archive``."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from penstock.config.component import DestinationConfig
from penstock.config.value_types.config_paths import LocalPath


class ArchiveConfig(DestinationConfig):
    type: Literal["archive"] = Field(default="archive", description="Selects this destination.")
    path: LocalPath = Field(description="Folder that the days' folders are in; made if it is missing.")
    dst: str | None = Field(
        default=None,
        min_length=1,
        description="The route whose events these are. What was replayed from its failed store is taken too, into files"
        " `failed.dst=<dst>-...`.",
    )
    names: Literal["incoming", "streaming-archive"] = Field(
        default="incoming",
        description="What files are called: `incoming.tok=<token>-...`, or `streaming-archive.dst=<dst>-...`.",
    )

    def replays_of(self) -> str | None:
        return self.dst

    @model_validator(mode="after")
    def _has_a_name(self) -> Self:
        if self.names == "streaming-archive" and self.dst is None:
            raise ValueError("names: streaming-archive needs dst, the route whose events these are")
        return self
