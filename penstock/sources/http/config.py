"""Options of the collector. What is checked here can no longer go wrong when the first request comes."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from penstock.config.component import ComponentConfig, Listening, SourceConfig
from penstock.config.value_types.config_paths import LocalPath
from penstock.config.value_types.listen_address import Address
from penstock.config.value_types.quantities import ByteSize, Duration
from penstock.conflation.bundle import NAME_RULE, is_name
from penstock.sources.http.access.origins import checked_origin

LARGEST_APPEND = 48 * 2**20
"""Bytes of records, with what is added to them, that the log takes of one request: they are one frame, whole or not at
all. Three quarters of the largest frame, because what a record weighs besides its data is estimated."""


class TokenConfig(ComponentConfig):
    """Who may send. ``client_secret`` is public by nature (it is in a web page); ``server_secret`` is not."""

    id: str = Field(min_length=1, description="Name of the token: it is what events and headers carry, not the secret.")
    client_secret: SecretStr | None = Field(
        default=None,
        description="Opens the JS endpoint, the pixel, Segment's endpoints and bulk, not the server API. Meant for"
        " browsers and apps, so treat it as public.",
    )
    server_secret: SecretStr | None = Field(
        default=None,
        description="Opens the server API, Segment's endpoints, bulk and bundles. Not the JS endpoint and the pixel: it"
        " has no business in a web page, and being refused there is how one finds out that it got into one.",
    )
    origins: list[Annotated[str, AfterValidator(checked_origin)]] = Field(
        default=[],
        description="Web origins whose pages may use the client secret: `https://shop.example` (exactly this),"
        " `shop.example` (any scheme and port), `*.shop.example` (hosts below it), `*`. They get CORS headers; pages of"
        " others get 403. Empty: no CORS headers, and nothing is checked.",
    )

    @model_validator(mode="after")
    def _has_a_secret(self) -> Self:
        secrets = [s.get_secret_value() for s in (self.client_secret, self.server_secret) if s is not None]
        if not secrets:
            raise ValueError(f"token '{self.id}' has no secret; give it a client_secret, a server_secret or both")
        if not all(secrets):
            raise ValueError(f"token '{self.id}' has an empty secret; is the variable it comes from set?")
        return self


def _checked_source(name: str) -> str:
    if not is_name(name):
        raise ValueError(NAME_RULE)
    return name


class HttpTokenConfig(TokenConfig):
    """Who may send, and whose state. ``client_secret`` is public by nature (it is in a web page); ``server_secret`` is
    not."""

    source: Annotated[str, AfterValidator(_checked_source)] | None = Field(
        default=None,
        description="The only source whose bundles the server secret may send to `/api/v1/bundles`; those of others are"
        " kept as failed. Absent: any source.",
    )

    @model_validator(mode="after")
    def _can_send_bundles(self) -> Self:
        if self.source is not None and self.server_secret is None:
            raise ValueError(f"token '{self.id}' has a source and no server_secret, which is what opens the bundles")
        return self


def _fits_the_log(size: int) -> int:
    if size > LARGEST_APPEND:
        raise ValueError(
            f"more than the {LARGEST_APPEND} bytes that the log takes of one request; make it 48MiB or less, and"
            " let clients send more requests instead"
        )
    return size


AppendSize = Annotated[ByteSize, AfterValidator(_fits_the_log)]


class ServerLimits(ComponentConfig):
    """How much one request and all requests together may ask for, whatever they carry."""

    body_bytes: AppendSize = Field(
        default=10_000_000,
        gt=0,
        description="Largest body, as sent and after decompression, at most 48MiB: the log takes it whole or not at"
        " all. Over: 413.",
    )
    body_tokens: int = Field(
        default=2_000_000,
        gt=0,
        description="Most opening brackets, commas and colons in one JSON body, unpacked, those inside of texts"
        " included: what its parts cost, whatever their size. Over: 413.",
    )
    pending_bytes: ByteSize = Field(
        default=64 * 2**20,
        gt=0,
        description="Bytes that one worker may hold, packed and unpacked, from their arrival until they are on disk."
        " Over: 503, first for bodies that have gone silent.",
    )
    disk_reserve: ByteSize = Field(
        default=64 * 2**20,
        ge=0,
        description="With less room than this on the log's disk: 503. Routes and the ledger need it to deliver what the"
        " log holds, which is what makes room again.",
    )
    connections: int = Field(
        default=2048,
        gt=0,
        description="Open connections of each worker. When there are more, those without a token go first, then those"
        " that have been idle for longest. The system deals connections out unevenly, so a limit over all workers"
        " would make some wait while others are free.",
    )
    anonymous_connections: int = Field(
        default=1024,
        gt=0,
        description="Open connections of each worker that have not shown a token yet; over it, the oldest of them go.",
    )
    anonymous_per_address: int = Field(
        default=256,
        gt=0,
        description="The same for connections from one address. Connections that have shown a token do not count, and"
        " trusted proxies have no such limit.",
    )
    header_timeout: Duration = Field(
        default=30.0, gt=0, description="Time for a request's headers to arrive; also closes idle connections."
    )
    body_timeout: Duration = Field(default=30.0, gt=0, description="Time for a body to arrive. Over: 408.")


class LimitsConfig(ServerLimits):
    """The same, and how much there may be of events."""

    event_bytes: AppendSize = Field(
        default=51_200, gt=0, description="Largest single event, at most 48MiB. Over: 413 with its index."
    )
    bundle_bytes: AppendSize = Field(
        default=10_000_000,
        gt=0,
        description="Largest single bundle of state, at most 48MiB; `body_bytes` counts too. Over: 413 with its index.",
    )
    body_events: int = Field(
        default=100_000, gt=0, description="Most events (or bulk lines, or bundles) in one body. Over: 413."
    )
    body_tokens: int = Field(
        default=2_000_000,
        gt=0,
        description="Most opening brackets, commas and colons in one body, unpacked and with its template filled in,"
        " those inside of texts included: what its parts cost, whatever their size. Over: 413.",
    )


class TlsConfig(ComponentConfig):
    """Certificate and key, PEM files."""

    cert: LocalPath = Field(description="Path of the certificate chain.")
    key: LocalPath = Field(description="Path of the private key.")

    @field_validator("cert", "key")
    @classmethod
    def _is_there(cls, path: Path) -> Path:
        if not path.is_file():
            raise ValueError(f"there is no file {path}")
        return path


def _checked_network(text: str) -> str:
    return str(ip_network(text, strict=False))


class CollectorConfig(SourceConfig):
    """The options of every source that serves HTTP with workers."""

    listen: Address = Field(description="host:port.")
    metrics: Address | None = Field(
        default=None,
        description="host:port on which the counters are shown to Prometheus (`/metrics`), apart from `listen`. By"
        " default for this machine only: 127.0.0.1, at the port of `listen` plus 1000 (8001: 9001).",
    )
    tokens: Sequence[TokenConfig] = Field(description="Who may send.")
    workers: int = Field(default=2, ge=1, le=64, description="Processes; each owns one partition of the log.")
    limits: ServerLimits = Field(default=ServerLimits(), description="Sizes and times that protect the server.")
    trusted_proxies: list[Annotated[str, AfterValidator(_checked_network)]] = Field(
        default=[], description="Addresses or networks whose X-Forwarded-For and X-Real-IP are believed."
    )
    tls: TlsConfig | None = Field(default=None, description="Serve HTTPS with this certificate.")

    @property
    def listening(self) -> Listening:
        return Listening(self.listen, self.tls is not None)

    @property
    def token_ids(self) -> list[str] | None:
        return [token.id for token in self.tokens] or None

    @property
    def partitions(self) -> int:
        return self.workers

    @field_validator("tokens")
    @classmethod
    def _distinct_tokens(cls, tokens: Sequence[TokenConfig]) -> Sequence[TokenConfig]:
        seen: dict[str, str] = {}
        for token in tokens:
            if token.id in (other.id for other in tokens if other is not token):
                raise ValueError(f"two tokens are called '{token.id}'")
            for secret in (token.client_secret, token.server_secret):
                if secret is None:
                    continue
                owner = seen.setdefault(secret.get_secret_value(), token.id)
                if owner != token.id or token.client_secret == token.server_secret:
                    raise ValueError(f"tokens '{owner}' and '{token.id}' use a secret twice; secrets must differ")
        return tokens


class HttpConfig(CollectorConfig):
    """The collector's options."""

    adds: ClassVar[frozenset[str]] = frozenset(("source_ip", "_timestamp", "api_key", "src", "eventn_ctx"))

    type: Literal["http"] = "http"
    listen: Address = Field(
        default="127.0.0.1:8001", description="host:port. The default is reachable from this machine only."
    )
    tokens: list[HttpTokenConfig] = Field(description="Who may send; at least one.")
    limits: LimitsConfig = Field(default=LimitsConfig(), description="Sizes and times that protect the server.")
    namespace: str | None = Field(default=None, description="Namespace of the records; the source's name if absent.")
    expose_secret: bool = Field(
        default=False, description="Store the secret itself in `api_key` instead of the token's id."
    )

    @field_validator("tokens")
    @classmethod
    def _has_tokens(cls, tokens: list[HttpTokenConfig]) -> list[HttpTokenConfig]:
        if not tokens:
            raise ValueError("no tokens: nobody could send; add one such as {id: site, client_secret: ...}")
        return tokens
