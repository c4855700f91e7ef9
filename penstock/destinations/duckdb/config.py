"""Options of the destination ``duckdb``."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from penstock.config.paths import LocalPath
from penstock.destinations.sql.config import SqlConfig


class DuckdbConfig(SqlConfig):
    offers_mirror: ClassVar[bool] = True

    type: Literal["duckdb"] = Field(default="duckdb", description="Selects this destination.")
    path: LocalPath = Field(description="The database file; made, with its directory, if it is missing.")
