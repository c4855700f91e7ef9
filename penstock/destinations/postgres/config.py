"""Options of the destination ``postgres``."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import AliasChoices, Field

from penstock.config.component import Offer
from penstock.config.value_types.database_url import PostgresUrl
from penstock.config.value_types.quantities import Duration
from penstock.destinations.postgres.type_names import POSTGRES_TYPES
from penstock.destinations.sql.config import FloatType, SqlConfig
from penstock.destinations.sql.type_names import TypeNames


class PostgresConfig(SqlConfig):
    type_names: ClassVar[TypeNames] = POSTGRES_TYPES
    offers: ClassVar[frozenset[Offer]] = frozenset(Offer)

    type: Literal["postgres"] = Field(default="postgres", description="Selects this destination.")
    url: PostgresUrl = Field(
        validation_alias=AliasChoices("url", "dsn"),
        description="Where the database is: `postgresql://user:password@host:5432/database`, or `host=... dbname=...`."
        " `dsn` is an older name of this key.",
    )
    database_schema: str = Field(
        default="public", min_length=1, max_length=63, description="The schema that tables are in; made if missing."
    )
    float: FloatType = Field(
        default=FloatType.NUMERIC,
        description="Numbers with a point: `numeric` is numeric(38,18), `double` is double precision.",
    )
    lock_timeout: Duration = Field(
        default=10.0,
        gt=0,
        description="How long to wait for a table that somebody has locked. It is tried again later, and other tables"
        " do not wait for it.",
    )
    connect_timeout: Duration = Field(default=10.0, gt=0, description="How long to wait for a connection.")
