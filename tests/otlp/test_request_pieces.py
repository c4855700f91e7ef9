"""Requests that are cut and joined by their bytes lose nothing, and share what they can."""

from __future__ import annotations

import itertools

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.metrics.v1.metrics_pb2 import Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics

from penstock.otlp.request_pieces import bytes_field, cut_request, join_request
from tests.support.otlp_requests import REQUESTS, UNKNOWN, one_span, placed_spans, request, resource_spans, span


@settings(max_examples=150)
@given(st.lists(REQUESTS, min_size=1, max_size=3))
def test_every_span_keeps_its_resource_its_scope_and_its_place(requests: list[ExportTraceServiceRequest]) -> None:
    bodies = [each.SerializeToString() for each in requests]
    joined = join_request(piece for body in bodies for piece in cut_request(body))
    assert list(placed_spans(joined)) == [placed for body in bodies for placed in placed_spans(body)]


@settings(max_examples=150)
@given(st.lists(REQUESTS, min_size=1, max_size=3))
def test_no_neighbours_have_the_same_resource_or_scope(requests: list[ExportTraceServiceRequest]) -> None:
    pieces = [piece for each in requests for piece in cut_request(each.SerializeToString())]
    joined = ExportTraceServiceRequest.FromString(join_request(pieces))
    for one, other in itertools.pairwise(joined.resource_spans):
        assert (one.resource, one.schema_url) != (other.resource, other.schema_url)
    for resource in joined.resource_spans:
        for first, second in itertools.pairwise(resource.scope_spans):
            assert (first.scope, first.schema_url) != (second.scope, second.schema_url)


def test_spans_of_one_service_share_its_resource() -> None:
    bodies = [one_span(1), one_span(2), one_span(3, "cart"), one_span(4)]
    joined = ExportTraceServiceRequest.FromString(join_request(piece for body in bodies for piece in cut_request(body)))
    assert [[len(scope.spans) for scope in each.scope_spans] for each in joined.resource_spans] == [[2], [1], [1]]


def test_scopes_and_schemas_are_kept_apart() -> None:
    groups = [
        resource_spans("shop", span(1)),
        resource_spans("shop", span(2), scope="other"),
        resource_spans("shop", span(3), scope="other", schema_url="https://new"),
    ]
    joined = ExportTraceServiceRequest.FromString(
        join_request(piece for group in groups for piece in cut_request(request(group)))
    )
    assert [(len(each.scope_spans), each.schema_url) for each in joined.resource_spans] == [(2, ""), (1, "https://new")]


def framed(number: int, content: bytes) -> bytes:
    """A field, with a length of two bytes."""
    return bytes([number << 3 | 2, len(content) & 0x7F | 0x80, len(content) >> 7]) + content


GROUP = bytes([0xFB, 0x3F, 0x0B, 0x10, 0x80, 0x01, 0x0C, 0x0D, 1, 2, 3, 4, 0x12, 1, 65, 0xFC, 0x3F])
"""A group 1023 with a group, a varint, four bytes and a text in it."""


@pytest.mark.parametrize("unknown", [UNKNOWN, GROUP, b"\xf8\x3f\xff\x01", b"\xf9\x3f12345678", b"\xfd\x3f1234"])
def test_fields_that_nobody_knows_survive_wherever_they_stand(unknown: bytes) -> None:
    spans = framed(2, span(1).SerializeToString() + unknown) + unknown + framed(2, span(2).SerializeToString())
    body = framed(1, framed(2, unknown + spans) + unknown) + unknown
    (piece,) = cut_request(body)
    assert len(piece.entries) == 2
    joined = join_request([piece])
    assert joined.count(unknown) == body.count(unknown)
    assert list(cut_request(joined)) == [piece]
    read = ExportTraceServiceRequest.FromString(joined)
    assert len(read.resource_spans[0].scope_spans[0].spans) == 2


def test_logs_and_metrics_have_the_same_shape() -> None:
    record = LogRecord(severity_text="INFO")
    logs = ExportLogsServiceRequest(
        resource_logs=[ResourceLogs(scope_logs=[ScopeLogs(log_records=[record, record], schema_url="s")])]
    )
    metric = Metric(name="m", gauge=Gauge(data_points=[NumberDataPoint(as_int=1)]))
    metrics = ExportMetricsServiceRequest(
        resource_metrics=[ResourceMetrics(scope_metrics=[ScopeMetrics(metrics=[metric])], schema_url="r")]
    )
    for each in (logs, metrics):
        body = each.SerializeToString()
        assert type(each).FromString(join_request(cut_request(body))) == each


def test_what_has_no_entries_gives_no_pieces() -> None:
    assert list(cut_request(b"")) == []
    assert list(cut_request(request(resource_spans("shop")))) == []


@pytest.mark.parametrize("body", [b"\x0a", b"\x0a\x05ab", b"\x80", b"\x07", b"\x00\x01", b"\x0b\x08\x01", b"\xff" * 12])
def test_what_is_no_message_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(ValueError, match="no protobuf"):
        list(cut_request(body))


@settings(max_examples=300)
@given(st.binary(max_size=40), REQUESTS)
def test_what_protobuf_reads_can_be_cut(tail: bytes, whole: ExportTraceServiceRequest) -> None:
    for body in (tail, whole.SerializeToString() + tail):
        try:
            ExportTraceServiceRequest.FromString(body)
        except DecodeError:
            continue
        assert list(placed_spans(join_request(cut_request(body)))) == list(placed_spans(body))


@given(st.binary(max_size=40))
def test_whatever_comes_is_cut_or_refused(body: bytes) -> None:
    try:
        pieces = list(cut_request(body))
    except ValueError:
        return
    list(cut_request(join_request(pieces)))


def test_the_last_value_of_a_field_counts() -> None:
    assert bytes_field(framed(2, b"a") + framed(1, b"x") + framed(2, b"b"), 2) == b"b"
    assert bytes_field(framed(1, b"x"), 2) == b""
