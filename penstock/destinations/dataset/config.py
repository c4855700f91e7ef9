"""Options of the destination ``dataset``."""

from __future__ import annotations

from typing import ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from penstock.config.component import DestinationConfig, IntakeLimits
from penstock.config.value_types.config_paths import LocalPath
from penstock.config.value_types.quantities import ByteSize, Duration
from penstock.destinations.sending.sending_options import OnFailing, Packing, Reject, RetryOptions
from penstock.sessions.request_limits import MOST_BYTES

LEAST_BYTES = 1024
"""Of a request: one that is smaller has no room for an event."""
_LEVELS = {"gzip": range(4), "zstd": range(1, 20), "none": range(20)}


class DatasetConfig(DestinationConfig):
    settles_late: ClassVar[bool] = True

    type: Literal["dataset"] = Field(default="dataset", description="Selects this destination.")
    url: str = Field(description="Where the API is: `https://app.scalyr.com`; `/api/addEvents` is put behind it.")
    token: SecretStr = Field(description="The write token, best as `${DATASET_TOKEN}`.")
    group_by: tuple[str, ...] = Field(
        default=(),
        description="Fields by which events are grouped into sessions, such as `service` or `kubernetes.pod`. The file"
        " (`logfile`) and the host (`serverHost`) are always part of it.",
    )
    max_sessions_per_key: int = Field(
        default=1,
        ge=1,
        le=1_000,
        description="Over how many sessions the events of one group are spread. More than one gives up their order.",
    )
    server_host: str | None = Field(
        default=None, min_length=1, description="The host of events that name none; by default this machine's name."
    )
    max_size: ByteSize = Field(
        default=MOST_BYTES,
        ge=LEAST_BYTES,
        le=MOST_BYTES,
        description="Most bytes of one request, before compression. A larger event is trimmed.",
    )
    max_lifetime: Duration = Field(
        default=5.0,
        ge=0.1,
        le=3_600,
        description="How old the oldest event of a request may become before it is sent, full or not.",
    )
    max_parallel_outgoing: int = Field(
        default=100,
        ge=1,
        le=10_000,
        description="Most requests in flight, each of another session, also those that take long.",
    )
    compression: Packing = Field(default=Packing.GZIP, description="`gzip`, `zstd` or `none`.")
    compression_level: int = Field(
        default=1, ge=0, description="For `gzip` 0 to 3, for `zstd` 1 to 19: higher packs smaller and takes longer."
    )
    retry: RetryOptions = Field(default=RetryOptions(), description="When a request is sent again.")
    on_error: OnFailing = Field(
        default=OnFailing.WAIT,
        description="What becomes of a request that was sent again for as long as `retry.for` says: `wait` keeps its"
        " events in the log and goes on trying, `dead_letter` puts them into the failed store.",
    )
    reject_when_failing: Reject = Field(
        default=None,
        description="Let sources answer 503 while sessions fail: after an `age`, or once so many `bytes` wait. `true`"
        " is an age of 60 s.",
    )
    error_state_timeout: Duration = Field(
        default=600.0, gt=0, description="A session without a new error for so long no longer counts as failing."
    )
    timeout: Duration = Field(default=30.0, gt=0, description="How long to wait for an answer.")
    patience: Duration = Field(
        default=5.0,
        gt=0,
        description="How long a batch waits for one answer. A request that takes longer goes on by itself, and its"
        " session waits for it alone.",
    )
    id_attribute: str | None = Field(
        default="penstock.id",
        min_length=1,
        description="The attribute with the event's delivery id, which is the same whenever the event is sent again;"
        " `null` for none.",
    )
    ca: LocalPath | None = Field(
        default=None, description="A file of certificates (PEM) to trust instead of the system's, for `https`."
    )

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("not an address; write https://app.scalyr.com")
        if parts.username is not None:
            raise ValueError("an address with a password; the token is given as `token`")
        return value.rstrip("/")

    @field_validator("token")
    @classmethod
    def _is_there(cls, value: SecretStr) -> SecretStr:
        if not value.get_secret_value().strip():
            raise ValueError("the token is empty; give one that may write, best as ${DATASET_TOKEN}")
        return value

    @field_validator("group_by")
    @classmethod
    def _names_fields_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(value) or len(set(value)) < len(value):
            raise ValueError("a field has no name or is named twice; write group_by: [service, host]")
        return value

    @model_validator(mode="after")
    def _packs(self) -> Self:
        levels = _LEVELS[self.compression]
        if self.compression_level not in levels:
            raise ValueError(
                f"compression_level {self.compression_level} is none of {self.compression}: it has {levels[0]} to"
                f" {levels[-1]}"
            )
        return self

    @model_validator(mode="after")
    def _trusts_somebody(self) -> Self:
        if self.ca is not None and not self.url.startswith("https:"):
            raise ValueError("ca is for a url that begins with https")
        return self

    @property
    def refuses_intake(self) -> IntakeLimits | None:
        return None if self.reject_when_failing is None else self.reject_when_failing.limits

    @property
    def gathers_for(self) -> float | None:
        return self.max_lifetime

    @property
    def place(self) -> tuple[object, ...]:
        return (self.url,)
