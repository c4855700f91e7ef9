"""Options of the destination ``redshift``."""

from __future__ import annotations

import re
from typing import ClassVar, Literal

from pydantic import AliasChoices, Field, SecretStr, field_validator

from penstock.config.value_types.database_url import check_postgres_address
from penstock.config.value_types.quantities import Duration
from penstock.destinations.redshift.type_names import REDSHIFT_TYPES
from penstock.destinations.sql.config import FloatType, SqlConfig
from penstock.destinations.sql.type_names import TypeNames

_ROLE = re.compile(r"arn:aws[a-z-]*:iam::\d+:role/[\w+=,.@/-]+(,arn:aws[a-z-]*:iam::\d+:role/[\w+=,.@/-]+)*")
_LOCATION = re.compile(r"(s3|file)://[^?#'@]+")
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")


class RedshiftConfig(SqlConfig):
    type_names: ClassVar[TypeNames] = REDSHIFT_TYPES
    type: Literal["redshift"] = Field(default="redshift", description="Selects this destination.")
    url: SecretStr = Field(
        validation_alias=AliasChoices("url", "dsn"),
        description="Where the database is: `postgresql://user:password@cluster.region.redshift.amazonaws.com:5439/dev`."
        " `dsn` is an older name of this key.",
    )
    database_schema: str = Field(
        default="public",
        max_length=127,
        pattern=r"^[A-Za-z_][A-Za-z0-9_$]*$",
        description="The schema that tables are in; made if it is missing and is not `public`.",
    )
    staging: str = Field(
        description="Where files are put for Redshift to read: `s3://bucket/prefix`. Each is deleted after its load."
    )
    iam_role: str = Field(
        default="default",
        description="The role by which Redshift reads the files: `arn:aws:iam::<account>:role/<name>`, several with"
        " commas between them for a chain, or `default` for the cluster's own.",
    )
    region: str | None = Field(
        default=None, description="The bucket's region, such as `eu-west-1`, if it is not the cluster's."
    )
    float: FloatType = Field(
        default=FloatType.NUMERIC,
        description="Numbers with a point: `numeric` is numeric(38,18), `double` is double precision.",
    )
    connect_timeout: Duration = Field(default=10.0, gt=0, description="How long to wait for a connection.")

    @field_validator("url")
    @classmethod
    def _looks_like_one(cls, value: SecretStr) -> SecretStr:
        # It may hold a password, so no message repeats it.
        check_postgres_address(value.get_secret_value(), "postgresql://user:password@host:5439/database")
        return value

    # These three go into COPY as they are.

    @field_validator("staging")
    @classmethod
    def _is_a_location(cls, value: str) -> str:
        if not _LOCATION.fullmatch(value):
            raise ValueError("not a place for files; write s3://bucket/prefix")
        return value.rstrip("/")

    @field_validator("iam_role")
    @classmethod
    def _is_a_role(cls, value: str) -> str:
        if value != "default" and not _ROLE.fullmatch(value):
            raise ValueError("not a role; write arn:aws:iam::<account>:role/<name> or default")
        return value

    @field_validator("region")
    @classmethod
    def _is_a_region(cls, value: str | None) -> str | None:
        if value is not None and not _REGION.fullmatch(value):
            raise ValueError(f"'{value}' is no region; write one such as eu-west-1")
        return value
