"""Export requests for tests."""

from __future__ import annotations

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

TRACE = bytes(range(16))
SPAN = b"12345678"


def traces(*ids: tuple[bytes, bytes], name: str = "checkout", pad: int = 0) -> ExportTraceServiceRequest:
    """A request with a span for each pair of trace id and span id; one good span if there are none."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for trace_id, span_id in ids or ((TRACE, SPAN),):
        span = scope.spans.add(trace_id=trace_id, span_id=span_id, name=name, kind=2)
        span.attributes.add(key="pad").value.string_value = "x" * pad
    return request


def traces_json(*ids: tuple[str, str]) -> bytes:
    spans = ",".join(f'{{"traceId":"{trace_id}","spanId":"{span_id}"}}' for trace_id, span_id in ids)
    return f'{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{spans}]}}]}}]}}'.encode()
