"""Options of the OTLP source. What is checked here can no longer go wrong when the first request comes."""

from __future__ import annotations

from importlib.util import find_spec
from ipaddress import ip_address
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from penstock.config.value_types.listen_address import Address, split_address
from penstock.sources.http.config import CollectorConfig, ServerLimits, TokenConfig


class OtlpLimits(ServerLimits):
    """The same as for every collector, and how much there may be in a request."""

    body_messages: int = Field(
        default=1_000_000,
        gt=0,
        description="Most messages of protobuf in one request (resources, scopes, spans, log records, metrics, data"
        " points, events, links, attributes, values), in JSON the objects that stand for them: what its parts cost,"
        " whatever their size. Over: 413.",
    )


class OtlpConfig(CollectorConfig):
    """The OTLP source's options."""

    type: Literal["otlp"] = "otlp"
    listen: Address = Field(
        default="127.0.0.1:4318",
        description="host:port for OTLP/HTTP. The default is reachable from this machine only.",
    )
    tokens: list[TokenConfig] = Field(
        default=[],
        description="Who may send, by client or server secret alike. Without tokens anybody may, which is allowed on"
        " loopback addresses only.",
    )
    limits: OtlpLimits = Field(default=OtlpLimits(), description="Sizes and times that protect the server.")
    grpc: Address | None = Field(
        default=None,
        description="host:port for OTLP/gRPC, such as 127.0.0.1:4317; off if absent. Needs the extra `penstock[grpc]`.",
    )

    @field_validator("grpc")
    @classmethod
    def _grpc_is_installed(cls, address: str | None) -> str | None:
        if address is not None and find_spec("grpc") is None:
            raise ValueError("gRPC needs the package grpcio, which is not installed; pip install 'penstock[grpc]'")
        return address

    @model_validator(mode="after")
    def _strangers_need_tokens(self) -> Self:
        for option, address in (("listen", self.listen), ("grpc", self.grpc)):
            if address is not None and not self.tokens and not is_loopback(address):
                raise ValueError(
                    f"`{option}` is {address}, which others can reach, and there are no tokens: anybody could send;"
                    " add tokens such as [{id: apps, server_secret: ...}], or listen on 127.0.0.1"
                )
        return self


def is_loopback(address: str) -> bool:
    """Whether only this machine can connect to the address."""
    host, _ = split_address(address)
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
