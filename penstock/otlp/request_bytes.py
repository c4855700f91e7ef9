"""The protobuf bytes of an OTLP request that came as a record: the one place that looks at its content type."""

from __future__ import annotations

from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from penstock.otlp.json_requests import BadJsonRequest, Signal, to_protobuf

NOT_OTLP = "not_otlp"
"""The code of the failure of a row that is no OTLP request."""

PROTOBUF = "application/x-protobuf"
JSON = "application/json"

REQUESTS: dict[Signal, type[Message]] = {
    Signal.TRACES: ExportTraceServiceRequest,
    Signal.LOGS: ExportLogsServiceRequest,
    Signal.METRICS: ExportMetricsServiceRequest,
}


class NotOtlp(ValueError):
    """A record is no OTLP request; the message says why, to a person."""


def parse_request(signal: Signal, content_type: str | None, data: bytes | None) -> tuple[Message, bytes]:
    """The request, and its protobuf bytes. Raises ``NotOtlp``."""
    body = _protobuf(signal, content_type, data)
    try:
        return REQUESTS[signal].FromString(body), body
    except DecodeError:
        raise NotOtlp(f"it is no protobuf of an OTLP request of {signal}") from None


def _protobuf(signal: Signal, content_type: str | None, data: bytes | None) -> bytes:
    """The data of a record as protobuf. Raises ``NotOtlp`` if its content type, or JSON that cannot be read, says that
    it is no request; the bytes of protobuf are not looked at."""
    if data is None:
        raise NotOtlp("it has no data")
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind == PROTOBUF:
        return data
    if kind != JSON:
        named = f"is '{kind}'" if kind else "is missing"
        raise NotOtlp(f"its content type {named}; an OTLP request has {PROTOBUF} or {JSON}")
    try:
        return to_protobuf(signal, data)
    except BadJsonRequest as error:
        raise NotOtlp(f"it is no OTLP/JSON: {error}") from error
