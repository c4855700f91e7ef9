"""Options of the PostgreSQL source."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema, field_validator

from penstock.config.component import SourceConfig
from penstock.config.value_types.database_url import PostgresUrl
from penstock.config.value_types.quantities import Duration

_SLOT = re.compile(r"[a-z0-9_]{1,50}")
_LONGEST_NAME = 63


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _pattern(text: str) -> str:
    schema, dot, table = text.removeprefix("!").partition(".")
    if not (schema and dot and table):
        raise ValueError(f"'{text}' is not schema.table, such as public.orders, public.* or !public.audit_*")
    return text


Pattern = Annotated[str, AfterValidator(_pattern)]


class PostgresConfig(SourceConfig):
    """Which tables of which database, and what they are followed by."""

    bounded: ClassVar[bool] = True
    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    type: Literal["postgres"] = "postgres"
    url: PostgresUrl = Field(
        description="Where the database is: `postgresql://user:password@host:5432/database`. The role needs permission"
        " to replicate and to read the tables. Straight to the server: a connection pool cannot carry replication."
    )
    tables: Annotated[
        list[Pattern],
        BeforeValidator(_listed),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
    ] = Field(
        min_length=1,
        description="Tables as `schema.table`; `*` stands for any text, `?` for one character, and `!` in front"
        " leaves out what the others match. Tables that come later and match are taken too.",
    )
    copy_: bool = Field(
        default=True,
        alias="copy",
        description="Copy the rows that are there before following changes. `false`: changes only.",
    )
    slot: str = Field(
        default="penstock",
        description="Replication slot of this source alone, made when missing (a-z, 0-9, `_`). Another name starts"
        " over: every table is copied again, after a record that says so.",
    )
    publication: str = Field(
        default="penstock",
        min_length=1,
        max_length=_LONGEST_NAME,
        description="Publication that names the tables, made when missing and extended as tables come.",
    )
    workers: int = Field(default=2, ge=1, le=16, description="Connections that copy at the same time.")
    discover: Duration = Field(default=10.0, gt=0, description="How often it looks for new tables.")
    connect_timeout: Duration = Field(default=10.0, gt=0, description="How long to wait for a connection.")

    @field_validator("slot")
    @classmethod
    def _is_a_slot(cls, value: str) -> str:
        if _SLOT.fullmatch(value) is None:
            raise ValueError(f"'{value}' is not the name of a slot; use up to 50 of a-z, 0-9 and '_'")
        return value
