"""Options of the step ``sql``."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from penstock.config.component import StepConfig
from penstock.steps.sql.select import parse_select


def _checked(text: str) -> str:
    parse_select(text)
    return text


class SqlConfig(StepConfig):
    """A query."""

    main_option: ClassVar[str | None] = "query"

    query: Annotated[str, AfterValidator(_checked)] = Field(
        description="`select <expressions> [where <condition>]` over the data's fields, in Spark's dialect:"
        " `select id, price * quantity as total where price > 0`.",
    )
