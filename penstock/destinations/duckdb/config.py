"""Options of the destination ``duckdb``."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from penstock.config.component import Offer
from penstock.config.value_types.config_paths import LocalPath
from penstock.destinations.duckdb.type_names import DUCKDB_TYPES
from penstock.destinations.sql.config import SqlConfig
from penstock.destinations.sql.type_names import TypeNames


class DuckdbConfig(SqlConfig):
    type_names: ClassVar[TypeNames] = DUCKDB_TYPES
    offers: ClassVar[frozenset[Offer]] = frozenset(Offer)

    type: Literal["duckdb"] = Field(default="duckdb", description="Selects this destination.")
    path: LocalPath = Field(description="The database file; made, with its folder, if it is missing.")
