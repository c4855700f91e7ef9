"""Options of the destination ``otlp``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from penstock.config.component import DestinationConfig
from penstock.config.value_types.config_paths import LocalPath
from penstock.config.value_types.quantities import ByteSize, Duration

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_OURS = frozenset(
    ("connection", "content-encoding", "content-length", "content-type", "expect", "host", "te", "transfer-encoding")
)
"""Headers that say how a request is sent: the destination sets them itself."""


class Compression(StrEnum):
    GZIP = "gzip"
    NONE = "none"


class OtlpConfig(DestinationConfig):
    takes_otlp: ClassVar[bool] = True

    type: Literal["otlp"] = Field(default="otlp", description="Selects this destination.")
    endpoint: str = Field(
        description="Where to send: `http://127.0.0.1:4318`. The signal's path, such as `/v1/traces`, is put behind it."
    )
    headers: Mapping[str, SecretStr] = Field(
        default={}, description="Headers of every request; their values are secrets, best as `${OTLP_TOKEN}`."
    )
    compression: Compression = Field(default=Compression.GZIP, description="`gzip`, or `none`.")
    timeout: Duration = Field(default=10.0, gt=0, description="How long to wait for an answer.")
    max_spans: int = Field(default=512, ge=1, description="Most spans (log records, metrics) in one request.")
    max_bytes: ByteSize = Field(
        default=4 * 2**20,
        gt=0,
        le=2**30,
        description="Most bytes of one request, before compression. A single span that is larger is sent alone.",
    )
    ca: LocalPath | None = Field(
        default=None, description="A file of certificates (PEM) to trust instead of the system's, for `https`."
    )

    @field_validator("endpoint")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("not an address; write http://127.0.0.1:4318")
        if parts.username is not None:
            raise ValueError("an address with a password; write it in headers as authorization")
        if re.search(r"/v1/(traces|logs|metrics)/?$", parts.path):
            raise ValueError("the path of a signal is put behind it; leave it out")
        return value.rstrip("/")

    @field_validator("headers")
    @classmethod
    def _can_be_sent(cls, value: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
        for name, secret in value.items():
            if _NAME.fullmatch(name) is None:
                raise ValueError(f"'{name}' is no name of a header")
            if name.lower() in _OURS:
                raise ValueError(f"'{name}' is set by the destination itself; leave it out")
            if _VALUE.fullmatch(secret.get_secret_value()) is None:
                raise ValueError(f"the value of '{name}' has characters that no header can have")
        return value

    @model_validator(mode="after")
    def _trusts_somebody(self) -> Self:
        if self.ca is not None and not self.endpoint.startswith("https:"):
            raise ValueError("ca is for an endpoint that begins with https")
        return self
