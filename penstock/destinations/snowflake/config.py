"""Options of the destination ``snowflake``."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, SecretStr, model_validator

from penstock.config.value_types.config_paths import LocalPath
from penstock.config.value_types.quantities import Duration
from penstock.destinations.snowflake.type_names import SNOWFLAKE_TYPES
from penstock.destinations.sql.config import FloatType, SqlConfig
from penstock.destinations.sql.type_names import TypeNames


class SnowflakeConfig(SqlConfig):
    type_names: ClassVar[TypeNames] = SNOWFLAKE_TYPES
    type: Literal["snowflake"] = Field(default="snowflake", description="Selects this destination.")
    account: str = Field(min_length=1, description="The account's identifier, such as `myorg-myaccount`.")
    user: str = Field(min_length=1, description="Who loads.")
    password: SecretStr | None = Field(default=None, description="The user's password or programmatic access token.")
    private_key_path: LocalPath | None = Field(
        default=None, description="A file with the user's private key (PEM), instead of a password."
    )
    private_key_password: SecretStr | None = Field(default=None, description="What the private key is encrypted with.")
    role: str | None = Field(default=None, description="The role to load with; else the user's own.")
    warehouse: str | None = Field(default=None, description="The warehouse that does the work; else the user's own.")
    database: str = Field(
        min_length=1,
        description='The database. Its case does not matter, unless it is written in double quotes: `"My"`.',
    )
    database_schema: str = Field(
        default="PUBLIC", min_length=1, description="The schema that tables are in, written likewise; made if missing."
    )
    float: FloatType = Field(
        default=FloatType.NUMERIC,
        description="Numbers with a point: `numeric` is numeric(38,18), `double` is double.",
    )
    connect_timeout: Duration = Field(default=30.0, gt=0, description="How long to try to connect.")

    @model_validator(mode="after")
    def _can_log_in(self) -> Self:
        if (self.password is None) == (self.private_key_path is None):
            raise ValueError("give one of password and private_key_path")
        return self
