"""Options of the destination ``ga4``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from penstock.config.component import DestinationConfig
from penstock.config.value_types.quantities import Duration
from penstock.destinations.ga4 import limits
from penstock.json.paths import parse_path


class Ga4Config(DestinationConfig):
    type: Literal["ga4"] = Field(default="ga4", description="Selects this destination.")
    measurement_id: str = Field(
        pattern=r"^G-[A-Z0-9]{4,20}$", description="The web stream's measurement id, such as `G-ABC123DEF4`."
    )
    api_secret: SecretStr = Field(
        min_length=1, description="A secret of that stream's measurement protocol; best as `${GA4_API_SECRET}`."
    )
    event_name: str = Field(
        default="{{ event_type }}",
        description="The name of the event: a template over the record, such as `{{ event_type }}`, or a fixed one. A"
        " record for which it comes out empty is skipped.",
    )
    client_id: str | None = Field(
        default=None, description="Path of the browser's id, such as `/eventn_ctx/ids/ga_client_id`."
    )
    user_id: str | None = Field(
        default=None, description="Path of the user's id. One of the two must be in every record."
    )
    timestamp: str = Field(
        default="/_timestamp",
        description="Path of the event's time (RFC 3339); without a value there, the time at which it came to the log.",
    )
    params: tuple[str, ...] | None = Field(
        default=None,
        description="Paths of the fields that become parameters. By default all but those named above and those that"
        " the collector adds (`_timestamp`, `source_ip`, `api_key`, `src`, `eventn_ctx`).",
    )
    user_properties: Mapping[str, str] = Field(
        default={}, description="User properties: their names, and the paths of the fields that fill them."
    )
    id_param: str | None = Field(
        default="penstock_id",
        description="The parameter that carries the record's stable id, which no other record has, by which rows that"
        " were sent twice can be told; `null` for none.",
    )
    max_value: int = Field(
        default=limits.MAX_VALUE, ge=1, le=500, description="Longest text of a parameter: 100, with GA360 up to 500."
    )
    endpoint: str = Field(
        default="https://www.google-analytics.com",
        description="Where to send; `https://region1.google-analytics.com` keeps it in the EU.",
    )
    validate_only: bool = Field(
        default=False,
        description="Send every event to the validation server instead, which keeps none; what it finds wrong fails.",
    )
    timeout: Duration = Field(default=30.0, gt=0, description="How long to wait for an answer.")

    def templates(self) -> Mapping[str, str]:
        return {"event_name": self.event_name} if "{" in self.event_name else {}

    @field_validator("event_name")
    @classmethod
    def _is_a_template_or_a_name(cls, value: str) -> str:
        if "{" in value:
            from penstock.destinations.sql.stage.template import EventTemplate

            EventTemplate(value)
        elif (wrong := limits.event_name(value)) is not None:
            raise ValueError(wrong)
        return value

    @field_validator("client_id", "user_id", "timestamp")
    @classmethod
    def _is_a_path(cls, value: str | None) -> str | None:
        if value is not None and not all(parse_path(value) or [""]):
            raise ValueError(f"'{value}' is not the path of a field; write it as /user/id")
        return value

    @field_validator("user_properties")
    @classmethod
    def _are_properties(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        wrong = next((found for name in value if (found := limits.property_name(name)) is not None), None)
        if wrong is None and len(value) > limits.MAX_PROPERTIES:
            wrong = f"there are at most {limits.MAX_PROPERTIES} user properties"
        if wrong is not None:
            raise ValueError(wrong)
        return value

    @field_validator("id_param")
    @classmethod
    def _is_a_parameter(cls, value: str | None) -> str | None:
        if value is not None and (wrong := limits.param_name(value)) is not None:
            raise ValueError(wrong)
        return value

    @field_validator("endpoint")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise ValueError("not an address; write https://www.google-analytics.com")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _knows_whose(self) -> Self:
        if self.client_id is None and self.user_id is None:
            raise ValueError("give client_id, user_id or both: Google Analytics asks whose event it is")
        return self
