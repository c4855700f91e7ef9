"""Options of the destination ``clickhouse``."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import AliasChoices, Field, SecretStr, field_validator

from penstock.config.value_types.database_url import check_url
from penstock.config.value_types.quantities import Duration
from penstock.destinations.clickhouse.type_names import CLICKHOUSE_TYPES
from penstock.destinations.sql.config import SqlConfig
from penstock.destinations.sql.type_names import TypeNames

SCHEMES = ("clickhouse", "clickhouses", "http", "https", "chdb")


class ClickhouseConfig(SqlConfig):
    type_names: ClassVar[TypeNames] = CLICKHOUSE_TYPES
    type: Literal["clickhouse"] = Field(default="clickhouse", description="Selects this destination.")
    url: SecretStr = Field(
        validation_alias=AliasChoices("url", "dsn"),
        description="Where the server is: `clickhouse://user:password@host:8123`, or `clickhouses://` (or port 8443)"
        " for TLS. `chdb:///path` is ClickHouse's embedded engine in that folder, without a server."
        " `dsn` is an older name of this key.",
    )
    database: str = Field(
        default="default", min_length=1, max_length=127, description="The database that tables are in; made if missing."
    )
    connect_timeout: Duration = Field(default=10.0, gt=0, description="How long to wait for a connection.")
    answer_timeout: Duration = Field(default=300.0, gt=0, description="How long to wait for an answer.")

    @field_validator("url")
    @classmethod
    def _looks_like_one(cls, value: SecretStr) -> SecretStr:
        # It may hold a password, so no message repeats it.
        text, example = value.get_secret_value(), "clickhouse://user:password@host:8123"
        scheme, found, _ = text.partition("://")
        if not found or scheme not in SCHEMES:
            raise ValueError(f"not a ClickHouse address; write {example}")
        if scheme != "chdb":
            check_url(text, example)
        return value
