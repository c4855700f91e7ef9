"""The OpenTelemetry SDK sends to the source, unmodified, and the log holds what it sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.grpc import _log_exporter as grpc_logs
from opentelemetry.exporter.otlp.proto.grpc import metric_exporter as grpc_metrics
from opentelemetry.exporter.otlp.proto.grpc import trace_exporter as grpc_traces
from opentelemetry.exporter.otlp.proto.http import Compression, _log_exporter, metric_exporter, trace_exporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from penstock.record import Header, Record
from tests.sources.otlp.receiver import TOKENS, Running, receiver

RESOURCE = Resource.create({"service.name": "shop"})
BEARER = {"authorization": "Bearer private"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with receiver(tmp_path_factory.mktemp("sdk"), grpc=True, tokens=TOKENS) as source:
        yield source


def exporter_options(source: Running, transport: str, packed: bool, signal: str) -> dict[str, Any]:
    if transport == "http":
        compression = Compression.Gzip if packed else Compression.NoCompression
        return {"endpoint": f"{source.url}/v1/{signal}", "headers": BEARER, "compression": compression}
    pack = grpc.Compression.Gzip if packed else grpc.Compression.NoCompression
    return {
        "endpoint": f"127.0.0.1:{source.grpc_port}",
        "insecure": True,
        "headers": BEARER,
        "compression": pack,
    }


def record_spans(provider: TracerProvider) -> None:
    tracer = provider.get_tracer("shop.orders", "1.2")
    for number in range(20):
        with tracer.start_as_current_span("order", kind=SpanKind.SERVER) as order:
            order.set_attributes({"n": number, "price": 2.5, "ok": True, "tags": ["a", "é"], "big": 2**62})
            order.add_event("packed", {"box": 7})
            with tracer.start_as_current_span("pay", links=[Link(order.get_span_context())]) as pay:
                pay.set_status(Status(StatusCode.ERROR, "declined"))


def spans_of(request: ExportTraceServiceRequest) -> dict[bytes, bytes]:
    """Every span of a request, with its resource and scope, by its id."""
    return {
        span.span_id: b"".join(part.SerializeToString() for part in (resource.resource, scope.scope, span))
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }


def sent_since(source: Running, before: Sequence[Record]) -> list[Record]:
    return source.records()[len(before) :]


@pytest.mark.parametrize("transport", ["http", "grpc"])
@pytest.mark.parametrize("packed", [False, True])
def test_every_span_that_the_sdk_sends_is_in_the_log(running: Running, transport: str, packed: bool) -> None:
    before = running.records()
    exporters: dict[str, Any] = {"http": trace_exporter.OTLPSpanExporter, "grpc": grpc_traces.OTLPSpanExporter}
    kept = InMemorySpanExporter()
    provider = TracerProvider(resource=RESOURCE)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    exporter = exporters[transport](**exporter_options(running, transport, packed, "traces"))
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=60_000))
    record_spans(provider)
    provider.shutdown()
    finished: Sequence[ReadableSpan] = kept.get_finished_spans()
    found = sent_since(running, before)
    stored = {k: v for r in found for k, v in spans_of(ExportTraceServiceRequest.FromString(r.data or b"")).items()}
    assert stored == spans_of(encode_spans(finished))
    assert len(stored) == 40
    assert {record.namespace for record in found} == {"traces"}
    expected = {Header.CONTENT_TYPE: "application/x-protobuf", Header.ENDPOINT: transport, Header.TOKEN: "apps"}
    assert [dict(record.headers) for record in found] == [expected] * len(found)


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_logs_of_the_sdk_are_in_the_log(running: Running, transport: str) -> None:
    before = running.records()
    exporters: dict[str, Any] = {"http": _log_exporter.OTLPLogExporter, "grpc": grpc_logs.OTLPLogExporter}
    provider = LoggerProvider(resource=RESOURCE)
    exporter = exporters[transport](**exporter_options(running, transport, True, "logs"))
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    provider.get_logger("shop").emit(severity_number=SeverityNumber.WARN, body="sold out")
    provider.shutdown()
    (record,) = sent_since(running, before)
    request = ExportLogsServiceRequest.FromString(record.data or b"")
    assert request.resource_logs[0].scope_logs[0].log_records[0].body.string_value == "sold out"
    assert record.namespace == "logs"


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_metrics_of_the_sdk_are_in_the_log(running: Running, transport: str) -> None:
    before = running.records()
    exporters: dict[str, Any] = {
        "http": metric_exporter.OTLPMetricExporter,
        "grpc": grpc_metrics.OTLPMetricExporter,
    }
    exporter = exporters[transport](**exporter_options(running, transport, True, "metrics"))
    provider = MeterProvider([PeriodicExportingMetricReader(exporter, 60_000)], RESOURCE)
    provider.get_meter("shop").create_counter("sold").add(3)
    provider.shutdown()
    (record,) = sent_since(running, before)
    request = ExportMetricsServiceRequest.FromString(record.data or b"")
    names = [metric.name for metric in request.resource_metrics[0].scope_metrics[0].metrics]
    assert names == ["sold"]
    assert record.namespace == "metrics"


def test_the_sdk_works_without_tokens_on_loopback(tmp_path: Path) -> None:
    with receiver(tmp_path) as source:
        provider = TracerProvider(resource=RESOURCE)
        exporter = trace_exporter.OTLPSpanExporter(endpoint=f"{source.url}/v1/traces")
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        with provider.get_tracer("shop").start_as_current_span("hello"):
            pass
        provider.shutdown()
        (record,) = source.records()
        assert Header.TOKEN not in record.headers
