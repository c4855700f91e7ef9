"""Options of the destination ``postgres``."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, SecretStr, field_validator

from penstock.config.quantities import Duration
from penstock.destinations.sql.config import FloatType, SqlConfig


class PostgresConfig(SqlConfig):
    offers_mirror: ClassVar[bool] = True

    type: Literal["postgres"] = Field(default="postgres", description="Selects this destination.")
    dsn: SecretStr = Field(
        description="Where the database is: `postgresql://user:password@host:5432/database`, or `host=... dbname=...`."
    )
    database_schema: str = Field(
        default="public", min_length=1, max_length=63, description="The schema that tables are in; made if missing."
    )
    float: FloatType = Field(
        default=FloatType.NUMERIC,
        description="Numbers with a point: `numeric` is numeric(38,18), `double` is double precision.",
    )
    connect_timeout: Duration = Field(default=10.0, gt=0, description="How long to wait for a connection.")

    @field_validator("dsn")
    @classmethod
    def _looks_like_one(cls, value: SecretStr) -> SecretStr:
        # It may hold a password, so no message repeats it.
        text = value.get_secret_value()
        if not text.startswith(("postgresql://", "postgres://")) and "=" not in text:
            raise ValueError("not a PostgreSQL address; write postgresql://user:password@host:5432/database")
        return value
