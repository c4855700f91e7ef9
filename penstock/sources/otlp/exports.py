"""Reads export requests far enough to vouch for them: that they can be read again, and which spans are no spans."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from penstock.otlp.json_requests import BadJsonRequest, Signal, to_protobuf
from penstock.sources.otlp.message_limit import NoMessages, check_messages

TRACE_ID_BYTES = 16
SPAN_ID_BYTES = 8
_NO_TRACE = bytes(TRACE_ID_BYTES)
_NO_SPAN = bytes(SPAN_ID_BYTES)


class MediaType(StrEnum):
    """The two encodings of OTLP."""

    PROTOBUF = "application/x-protobuf"
    JSON = "application/json"


class BadExport(ValueError):
    """A body that is no request of its signal; sending it again cannot help."""


@dataclass(frozen=True, slots=True)
class Export:
    """What is in a request that can be read. ``items`` are spans, log records or metrics."""

    empty: bool
    """Whether it holds nothing at all, so that there is nothing to store."""
    items: int
    rejected: int = 0
    """Items among them that no reader can use."""


def read_export(signal: Signal, media_type: MediaType, body: bytes, most_messages: int) -> Export:
    """What a body holds; ``BadExport`` if it cannot be read, ``TooManyMessages`` if it has more of them. Safe in any
    thread."""
    if media_type is MediaType.JSON:
        try:
            body = to_protobuf(signal, body)
        except BadJsonRequest as error:
            raise BadExport(f"the body is no OTLP/JSON request for {signal}: {error}") from None
    try:
        check_messages(signal, body, most_messages)
    except NoMessages:
        raise BadExport(f"the body is no protobuf request for {signal}: its parts do not fit into each other") from None
    try:
        match signal:
            case Signal.TRACES:
                return _traces(ExportTraceServiceRequest.FromString(body))
            case Signal.LOGS:
                return _logs(ExportLogsServiceRequest.FromString(body))
            case Signal.METRICS:
                return _metrics(ExportMetricsServiceRequest.FromString(body))
    except DecodeError as error:
        raise BadExport(f"the body is no protobuf request for {signal}: {error}") from None


def count_wrong_ids(request: ExportTraceServiceRequest) -> int:
    """Spans without a trace id of 16 bytes or a span id of 8 bytes, of which not all are zero."""
    wrong = 0
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                trace_id, span_id = span.trace_id, span.span_id
                if (
                    len(trace_id) != TRACE_ID_BYTES
                    or len(span_id) != SPAN_ID_BYTES
                    or trace_id == _NO_TRACE
                    or span_id == _NO_SPAN
                ):
                    wrong += 1
    return wrong


def _traces(request: ExportTraceServiceRequest) -> Export:
    spans = sum(len(scope.spans) for resource in request.resource_spans for scope in resource.scope_spans)
    return Export(not request.resource_spans, spans, count_wrong_ids(request))


def _logs(request: ExportLogsServiceRequest) -> Export:
    found = sum(len(scope.log_records) for resource in request.resource_logs for scope in resource.scope_logs)
    return Export(not request.resource_logs, found)


def _metrics(request: ExportMetricsServiceRequest) -> Export:
    found = sum(len(scope.metrics) for resource in request.resource_metrics for scope in resource.scope_metrics)
    return Export(not request.resource_metrics, found)
