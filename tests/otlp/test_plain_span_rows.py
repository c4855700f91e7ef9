"""A row that is written without a message is, byte for byte, the row that is made of the message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from penstock.otlp.compiled_rows.plain_span_rows import plain_rows
from penstock.otlp.span_rows import SpanRows
from tests.support.otlp_requests import (
    NANOS,
    RESOURCES,
    SCOPES,
    SPANS,
    START,
    UNKNOWN,
    any_value,
    key_values,
    request,
    resource_spans,
    span,
)


def requests_of(*groups: tuple[Resource, InstrumentationScope, Span]) -> list[bytes]:
    return [
        request(ResourceSpans(resource=resource, scope_spans=[ScopeSpans(scope=scope, spans=[one])]))
        for resource, scope, one in groups
    ]


def written(requests: Sequence[bytes], nanoseconds: bool = False) -> list[bytes | None]:
    rows = SpanRows(nanoseconds=nanoseconds)

    def shared(resource: bytes, scope: bytes) -> bytes:
        return rows.shared(Resource.FromString(resource), InstrumentationScope.FromString(scope))

    found: list[bytes | None] = plain_rows(pa.array(requests, pa.binary()), shared, nanoseconds).to_pylist()
    return found


def built(body: bytes, nanoseconds: bool = False) -> bytes:
    (group,) = ExportTraceServiceRequest.FromString(body).resource_spans
    (scope,) = group.scope_spans
    rows = SpanRows(nanoseconds=nanoseconds)
    return rows.row(rows.shared(group.resource, scope.scope), scope.spans[0])


def of_span(one: Span) -> bytes:
    return request(resource_spans("shop", one))


PLAIN_TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=127, exclude_characters='"\\'), max_size=40)
SHORT_NUMBERS = st.builds(lambda digits, places: digits / 10**places, st.integers(-(10**9), 10**9), st.integers(0, 6))
PLAIN_VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | PLAIN_TEXTS
    | SHORT_NUMBERS.filter(lambda number: number == 0 or abs(number) >= 0.001)
)
PLAIN_SPANS = st.builds(
    Span,
    trace_id=st.binary(min_size=16, max_size=16),
    span_id=st.binary(max_size=8),
    parent_span_id=st.binary(max_size=8),
    trace_state=PLAIN_TEXTS,
    flags=st.integers(0, 2**32 - 1),
    name=PLAIN_TEXTS,
    kind=st.integers(0, 5),
    start_time_unix_nano=NANOS.filter(lambda nanos: nanos < 2**63),
    end_time_unix_nano=NANOS.filter(lambda nanos: nanos < 2**63),
    attributes=st.dictionaries(PLAIN_TEXTS, PLAIN_VALUES, max_size=20).map(key_values),
    dropped_attributes_count=st.integers(0, 2**32 - 1),
    dropped_events_count=st.integers(0, 2),
    dropped_links_count=st.integers(0, 2),
    status=st.builds(Status, message=PLAIN_TEXTS, code=st.integers(0, 2)),
)


@settings(max_examples=200)
@given(st.lists(st.tuples(RESOURCES, SCOPES, PLAIN_SPANS), max_size=5), st.booleans())
def test_a_plain_span_is_written_as_its_message_would_be(groups: list[Any], nanoseconds: bool) -> None:
    requests = requests_of(*groups)
    assert written(requests, nanoseconds) == [built(each, nanoseconds) for each in requests]


@settings(max_examples=200)
@given(st.lists(st.tuples(RESOURCES, SCOPES, SPANS), max_size=5), st.booleans())
def test_any_other_span_is_written_alike_or_left_to_others(groups: list[Any], nanoseconds: bool) -> None:
    requests = requests_of(*groups)
    for row, each in zip(written(requests, nanoseconds), requests, strict=True):
        assert row in (None, built(each, nanoseconds))


@settings(max_examples=300)
@given(st.floats())
def test_doubles_are_exact_or_left_to_others(value: float) -> None:
    body = of_span(span(attributes={"x": value}))
    assert written([body])[0] in (None, built(body))


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, 100.0, 0.1, 33.3, -7.25, 0.001, 1e15, 123456.789])
def test_doubles_of_few_digits_are_plain(value: float) -> None:
    body = of_span(span(attributes={"x": value}))
    assert written([body]) == [built(body)]


NOT_PLAIN: dict[str, Span] = {
    "an event": span(events=[Span.Event(name="boom", time_unix_nano=START)]),
    "a link": span(links=[Span.Link(trace_id=b"\2" * 16)]),
    "a quote": span(name='say "hello" to everybody'),
    "a backslash": span(attributes={"path": "C:\\somewhere\\else"}),
    "a line break": span(attributes={"text": "one\ntwo"}),
    "text beyond ASCII": span(attributes={"größe": "x"}),
    "a list": span(attributes={"x": [1]}),
    "a map": span(attributes={"x": {"y": 1}}),
    "bytes": span(attributes={"x": b"\xff"}),
    "a long double": span(attributes={"x": 1 / 3}),
    "a key twice": Span(attributes=[KeyValue(key="a", value=any_value(value)) for value in (1, 2)]),
    "a kind that is newer than this": span(kind=9),
    "a code that is newer than this": span(status=Status(code=7)),  # type: ignore[arg-type]
    "times beyond 63 bits": span(start_time_unix_nano=1, end_time_unix_nano=2**64 - 1),
    "many attributes": span(attributes={str(number): number for number in range(129)}),
}


@pytest.mark.parametrize("one", NOT_PLAIN.values(), ids=list(NOT_PLAIN))
def test_what_is_not_plain_is_left_to_others_and_its_neighbours_are_not(one: Span) -> None:
    plain = of_span(span())
    assert written([plain, of_span(one), plain]) == [built(plain), None, built(plain)]


def test_fields_that_nobody_knows_are_passed_over() -> None:
    one = Span.FromString(span(attributes={"x": 1}).SerializeToString() + UNKNOWN)
    assert written([of_span(one)]) == [built(of_span(one))]


def test_a_status_in_two_pieces_is_left_to_others() -> None:
    pieces = [Span(status=Status(message="no")), Span(status=Status(code=Status.STATUS_CODE_ERROR))]
    one = b"".join(piece.SerializeToString() for piece in pieces)
    group = b"\x12" + bytes([len(one)]) + one
    resource = b"\x12" + bytes([len(group)]) + group
    body = b"\x0a" + bytes([len(resource)]) + resource
    assert written([body]) == [None]


def test_no_spans_are_no_rows() -> None:
    assert written([]) == []
