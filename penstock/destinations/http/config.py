"""Options of the destination ``http``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Literal, Self
from urllib.parse import parse_qsl, urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from penstock.config.component import DestinationConfig, IntakeLimits
from penstock.config.secrets import is_secret_name
from penstock.config.value_types.config_paths import LocalPath
from penstock.config.value_types.quantities import ByteSize, Duration
from penstock.destinations.sending.sending_options import OnFailing, Packing, Reject, RetryOptions

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_OURS = frozenset(("connection", "content-encoding", "content-length", "expect", "host", "te", "transfer-encoding"))
"""Headers that say how a request is sent: the destination sets them itself."""


class Form(StrEnum):
    """How records stand in the body of a request."""

    JSON = "json"
    """An array."""
    NDJSON = "ndjson"
    """One on each line."""
    SINGLE = "single"
    """One record is one request."""


class Method(StrEnum):
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


class HttpConfig(DestinationConfig):
    settles_late: ClassVar[bool] = True

    type: Literal["http"] = Field(default="http", description="Selects this destination.")
    url: str = Field(
        description="Where to send: a template over the record, such as `https://api.example.com/users/{{ user.id }}`."
        " The values of fields are percent-encoded."
    )
    method: Method = Field(default=Method.POST, description="`POST`, `PUT`, `PATCH` or `DELETE`.")
    headers: Mapping[str, SecretStr] = Field(
        default={}, description="Headers of every request; their values are secrets, best as `${API_TOKEN}`."
    )
    templated_headers: Mapping[str, str] = Field(
        default={}, description="Headers whose values are templates over the record; they are no secrets."
    )
    key: str | None = Field(
        default=None,
        description="A template over the record, such as `{{ user.id }}`. Records of one key, to one URL with the same"
        " headers, are sent in their order, a request at a time. By default there is no order.",
    )
    form: Form = Field(
        default=Form.JSON, description="`json`: requests are arrays; `ndjson`: lines; `single`: a request per record."
    )
    body: str | None = Field(
        default=None, description="A template over the record for what is sent of it; by default the record as it is."
    )
    max_records: int = Field(default=1_000, ge=1, description="Most records in one request.")
    max_bytes: ByteSize = Field(
        default=1 << 20, ge=64, le=64 << 20, description="Most bytes of one request, before compression. A record that"
        " is larger alone fails.",
    )  # fmt: skip
    max_lifetime: Duration = Field(
        default=1.0,
        ge=0.1,
        le=3_600,
        description="How old a request's oldest record may become before it is sent.",
    )
    max_parallel_outgoing: int = Field(
        default=32,
        ge=1,
        le=1_000,
        description="Most requests in flight. It begins with a few, and goes up while answers stay fast.",
    )
    compression: Packing = Field(default=Packing.NONE, description="`gzip`, `zstd` or `none`.")
    retry: RetryOptions = Field(default=RetryOptions(initial=1.0), description="When a request is sent again.")
    on_error: OnFailing = Field(
        default=OnFailing.WAIT,
        description="What becomes of a request that was sent again for as long as `retry.for` says: `wait` keeps its"
        " records in the log and goes on trying, `dead_letter` puts them into the failed store.",
    )
    reject_when_failing: Reject = Field(
        default=None,
        description="Let sources answer 503 while keys fail: after an `age`, or once so many `bytes` wait. `true` is an"
        " age of 60 s.",
    )
    timeout: Duration = Field(default=30.0, gt=0, description="How long to wait for an answer.")
    patience: Duration = Field(
        default=5.0, gt=0, description="How long a batch waits for one answer; its key waits for it longer, alone."
    )
    ca: LocalPath | None = Field(
        default=None, description="A file of certificates (PEM) to trust instead of the system's, for `https`."
    )

    def templates(self) -> Mapping[str, str]:
        named = {"url": self.url, "key": self.key, "body": self.body}
        headers = {f"templated_headers.{name}": value for name, value in self.templated_headers.items()}
        return {name: text for name, text in {**named, **headers}.items() if text is not None and "{" in text}

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or "{" in parts.netloc or parts.fragment:
            raise ValueError("not an address; write https://api.example.com/events; the host is no template")
        if parts.username is not None:
            raise ValueError("an address with a password; write it in headers as authorization")
        if secret := next(
            (name for name, _ in parse_qsl(parts.query, keep_blank_values=True) if is_secret_name(name)), ""
        ):
            raise ValueError(f"an address with a secret, '{secret}'; write it in headers, which nobody is shown")
        return value

    @field_validator("headers", "templated_headers")
    @classmethod
    def _can_be_sent(cls, value: Mapping[str, SecretStr | str]) -> Mapping[str, SecretStr | str]:
        if len({name.lower() for name in value}) < len(value):
            raise ValueError("a header is named twice; upper and lower case are the same to servers")
        for name, held in value.items():
            text = held.get_secret_value() if isinstance(held, SecretStr) else held
            if _NAME.fullmatch(name) is None:
                raise ValueError(f"'{name}' is no name of a header")
            if name.lower() in _OURS:
                raise ValueError(f"'{name}' is set by the destination itself; leave it out")
            if _VALUE.fullmatch(text) is None:
                raise ValueError(f"the value of '{name}' has characters that no header can have")
        return value

    @model_validator(mode="after")
    def _renders(self) -> Self:
        if self.templates():
            from penstock.destinations.sql.stage.template import EventTemplate

            for name, text in self.templates().items():
                try:
                    EventTemplate(text)
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from None
        if self.ca is not None and not self.url.startswith("https:"):
            raise ValueError("ca is for a url that begins with https")
        return self

    @property
    def gathers_for(self) -> float | None:
        return self.max_lifetime

    @property
    def refuses_intake(self) -> IntakeLimits | None:
        return None if self.reject_when_failing is None else self.reject_when_failing.limits

    @property
    def place(self) -> tuple[object, ...]:
        return (self.url,)
