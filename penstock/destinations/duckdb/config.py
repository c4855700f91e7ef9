"""Options of the destination ``duckdb``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from penstock.config.component import DestinationConfig
from penstock.config.paths import LocalPath


class DuckdbConfig(DestinationConfig):
    type: Literal["duckdb"] = Field(default="duckdb", description="Selects this destination.")
    path: LocalPath = Field(description="The database file; made, with its directory, if it is missing.")
    table: str = Field(
        default="events",
        description="The table that a record goes to: a name, or a template over its data such as `{{ event_type }}`."
        " Made fit for a name (lower case, `_` for anything but letters and digits). A record for which it comes out"
        " empty is skipped.",
    )

    @field_validator("table")
    @classmethod
    def _is_a_template(cls, value: str) -> str:
        # Jinja is only loaded for a table that could be a template.
        if "{" in value:
            import jinja2

            try:
                jinja2.Environment().from_string(value)
            except jinja2.TemplateSyntaxError as error:
                raise ValueError(f"'{value}' is not a template: {error.message}") from error
        elif not value.strip():
            raise ValueError("a table needs a name")
        return value
