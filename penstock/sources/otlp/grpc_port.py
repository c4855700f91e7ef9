"""OTLP/gRPC: the three export services of a worker, into the same intake as OTLP/HTTP.

Senders are admitted by their metadata, before their message is read: the services are declared as taking a stream, of
which a unary client sends one message, because only then is the message left to us. Packed messages are not unpacked by
gRPC but by the intake, within the same limits as over HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

import grpc
from grpc import aio

from penstock.otlp.json_requests import Signal
from penstock.sources.http import responses
from penstock.sources.http.body.body_reader import BodyBudget
from penstock.sources.http.config import TlsConfig
from penstock.sources.http.metrics import Tally
from penstock.sources.http.responses import Answer, Refused, refusal_message
from penstock.sources.otlp.config import OtlpConfig
from penstock.sources.otlp.export_answers import accepted_protobuf
from penstock.sources.otlp.export_intake import Arrival, ExportIntake
from penstock.sources.otlp.exports import MediaType
from penstock.sources.otlp.rpc_status import RpcCode, code_of, status_protobuf
from penstock.sources.otlp.senders import Senders

SERVICES = {
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export": Signal.TRACES,
    "/opentelemetry.proto.collector.logs.v1.LogsService/Export": Signal.LOGS,
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export": Signal.METRICS,
}
READ_AT_ONCE = 32
"""Messages that are on their way at a time; gRPC holds them, so they count only when they are complete."""
STREAMS_PER_CONNECTION = 128
METADATA_BYTES = 32 * 1024
GRACE_SECONDS = 5.0
"""For calls under way when the worker stops."""
GZIP_MAGIC = b"\x1f\x8b"
"""No protobuf message begins so: its first tag would have a wire type that does not exist."""
_IDENTITY_AND_GZIP = 0b101
_CODES = {code.value[0]: code for code in grpc.StatusCode}

_log = logging.getLogger("penstock.http")


class GrpcPort:
    """``check_ready`` raises ``Refused`` while nothing can be stored."""

    def __init__(
        self,
        config: OtlpConfig,
        senders: Senders,
        intake: ExportIntake,
        room: BodyBudget,
        tally: Tally,
        check_ready: Callable[[], None],
    ) -> None:
        self._timeout = config.limits.body_timeout
        self._senders = senders
        self._intake = intake
        self._room = room
        self._tally = tally
        self._check_ready = check_ready
        self._reading = asyncio.Semaphore(READ_AT_ONCE)
        self._server = aio.server(
            handlers=[_Services(self._export)],
            options=[
                ("grpc.so_reuseport", 1),
                ("grpc.max_receive_message_length", config.limits.body_bytes),
                ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION),
                ("grpc.max_metadata_size", METADATA_BYTES),
                ("grpc.per_message_decompression", 0),
                ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_AND_GZIP),
            ],
        )

    async def open(self, address: str, tls: TlsConfig | None) -> None:
        if tls is None:
            self._server.add_insecure_port(address)
        else:
            pair = (tls.key.read_bytes(), tls.cert.read_bytes())
            self._server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        await self._server.start()

    async def close(self) -> None:
        """No new calls; those under way are answered."""
        await self._server.stop(GRACE_SECONDS)

    async def _export(self, signal: Signal, messages: AsyncIterator[bytes], call: aio.ServicerContext) -> bytes:
        try:
            answer = await self._take(signal, messages, call)
        except Refused as refused:
            refusal = refused.answer
        except Exception:
            _log.exception("a call for %s failed", signal)
            refusal = responses.FAILED
        else:
            self._tally.count_request(f"grpc_{signal}", 200)
            return answer
        self._tally.count_request(f"grpc_{signal}", refusal.status)
        await _abort(call, refusal)
        raise AssertionError("an aborted call goes on")

    async def _take(self, signal: Signal, messages: AsyncIterator[bytes], call: aio.ServicerContext) -> bytes:
        grant = self._senders.admit("", _Metadata(call.invocation_metadata()))
        self._check_ready()
        received = await self._message(messages)
        arrival = Arrival(
            signal=signal,
            media_type=MediaType.PROTOBUF,
            encoding="gzip" if received.startswith(GZIP_MAGIC) else "",
            endpoint="grpc",
            token_id=grant.token_id if grant is not None else None,
            sender=call.peer().rpartition(":")[0],
        )
        self._room.charge(len(received), large=True)
        try:
            return accepted_protobuf(await self._intake.take(arrival, received))
        finally:
            self._room.release(len(received))

    async def _message(self, messages: AsyncIterator[bytes]) -> bytes:
        try:
            async with asyncio.timeout(self._timeout), self._reading:
                return await anext(messages)
        except TimeoutError:
            raise Refused(responses.BODY_TIMEOUT) from None
        except StopAsyncIteration:
            raise Refused(responses.BROKEN_OFF) from None


class _Services(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc says nothing of its types
    def __init__(self, export: Callable[[Signal, AsyncIterator[bytes], aio.ServicerContext], object]) -> None:
        self._methods = {
            method: grpc.stream_unary_rpc_method_handler(partial(export, signal)) for method, signal in SERVICES.items()
        }

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self._methods.get(details.method)


class _Metadata:
    """A call's metadata, read as the headers of a request are."""

    def __init__(self, pairs: Sequence[tuple[str, str | bytes]] | None) -> None:
        self._pairs = [(key, value) for key, value in pairs or () if isinstance(value, str)]

    def get(self, key: str, /) -> str | None:
        return next(iter(self.get_all(key)), None)

    def get_all(self, key: str, /) -> list[str]:
        return [value for name, value in self._pairs if name == key]


async def _abort(call: aio.ServicerContext, refusal: Answer) -> None:
    code, message = code_of(refusal.status), refusal_message(refusal)
    retry = responses.RETRY_AFTER_SECONDS if code is RpcCode.UNAVAILABLE else None
    details = (("grpc-status-details-bin", status_protobuf(code, message, retry)),)
    await call.abort(_CODES[code], message, details)
