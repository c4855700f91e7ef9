"""OTLP/HTTP: from the socket to the intake, and the answer back, in the words of the OTLP specification.

``Receiver`` is an RSGI application for one worker. A request is: find the signal by its path, admit the sender by its
token, read the body within its limits, and hand it to the intake, which answers when the log has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from penstock.otlp.json_requests import Signal
from penstock.sources.http import responses
from penstock.sources.http.access.auth_tokens import Grant, Headers
from penstock.sources.http.access.client_address import ClientAddress
from penstock.sources.http.access.connections import Connections
from penstock.sources.http.access.cors import Cors
from penstock.sources.http.application import Application, Exchange
from penstock.sources.http.metrics import Tally
from penstock.sources.http.request import Scope
from penstock.sources.http.responses import Answer, Refused
from penstock.sources.otlp import export_answers
from penstock.sources.otlp.config import OtlpConfig
from penstock.sources.otlp.export_intake import Arrival, ExportIntake
from penstock.sources.otlp.exports import MediaType
from penstock.sources.otlp.senders import Senders

if TYPE_CHECKING:
    from penstock.sources.otlp.grpc_port import GrpcPort


@dataclass(frozen=True, slots=True)
class ExportPath:
    """An endpoint; its name is that of its signal."""

    signal: Signal

    @property
    def name(self) -> str:
        return str(self.signal)


ENDPOINTS: Mapping[str, ExportPath] = {f"/v1/{signal}": ExportPath(signal) for signal in Signal}


class Receiver(Application[ExportPath]):
    endpoints = ENDPOINTS
    not_found = responses.refusal(
        HTTPStatus.NOT_FOUND, "not_found", "there is nothing here; send to /v1/traces, /v1/logs or /v1/metrics"
    )
    intake: ExportIntake

    def __init__(self, config: OtlpConfig, source: str, tally: Tally, connections: Connections) -> None:
        super().__init__(config.limits, tally, connections)
        self.intake = ExportIntake(config.limits, tally, self.readiness, self.bodies.room)
        self.senders = Senders(config)
        self.config = config
        self._cors = Cors(config.tokens)
        self._addresses = ClientAddress(config.trusted_proxies)
        self._grpc: GrpcPort | None = None

    async def answer(self, endpoint: ExportPath, scope: Scope, exchange: Exchange) -> Answer:
        origin = scope.headers.get("origin") if self._cors.active else None
        if scope.method == "OPTIONS" and self._cors.active:
            return self._cors.preflight(None, origin, _METHODS)
        if scope.method != "POST":
            return self.worded(_POST_ONLY, scope)
        grant: Grant | None = None
        try:
            grant = self.senders.admit(scope.query_string, scope.headers)
            answer = await self._take(endpoint.signal, grant, scope, exchange, origin)
        except Refused as refused:
            answer = self.worded(refused.answer, scope)
        return answer if origin is None else self._cors.shared(answer, grant, origin)

    def worded(self, refusal: Answer, scope: Scope) -> Answer:
        return export_answers.refused(refusal, media_type_of(scope.headers) or MediaType.JSON)

    async def open_other_ports(self) -> None:
        if self.config.grpc is not None:
            from penstock.sources.otlp.grpc_port import GrpcPort  # an extra: needed only here

            self._grpc = GrpcPort(
                self.config, self.senders, self.intake, self.bodies.room, self.tally, self.check_ready
            )
            await self._grpc.open(self.config.grpc, self.config.tls)

    async def close_other_ports(self) -> None:
        if self._grpc is not None:
            await self._grpc.close()

    async def _take(
        self, signal: Signal, grant: Grant | None, scope: Scope, exchange: Exchange, origin: str | None
    ) -> Answer:
        headers = scope.headers
        self.connections.mark_known(scope.client)
        if origin is not None and grant is not None and self._cors.forbids(grant, origin):
            raise Refused(responses.FOREIGN_ORIGIN)
        self.check_ready()
        media_type = media_type_of(headers)
        if media_type is None:
            raise Refused(_OTHER_MEDIA_TYPE)
        arrival = Arrival(
            signal=signal,
            media_type=media_type,
            encoding=",".join(headers.get_all("content-encoding")),
            endpoint="http",
            token_id=grant.token_id if grant is not None else None,
            sender=self._addresses.of(scope.client, headers),
        )
        received = await self.bodies.read(headers, exchange, scope.client)
        try:
            export = await self.intake.take(arrival, received)
        finally:
            self.bodies.room.release(len(received))
        return export_answers.accepted(export, media_type)


def media_type_of(headers: Headers) -> MediaType | None:
    """What the Content-Type says; None if it is no encoding of OTLP."""
    return _MEDIA_TYPES.get((headers.get("content-type") or "").partition(";")[0].strip().lower())


_METHODS = "POST, OPTIONS"
_POST_ONLY = responses.wrong_method("POST")
_MEDIA_TYPES = {str(media_type): media_type for media_type in MediaType}
_OTHER_MEDIA_TYPE = responses.closing(
    responses.refusal(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        "unknown_media_type",
        "send Content-Type application/x-protobuf or application/json; nothing was stored",
    )
)
