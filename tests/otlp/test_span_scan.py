"""The compiled scanner finds what a reader of messages finds, whatever the bytes are."""

from __future__ import annotations

import random

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span

from penstock.otlp.cut_spans import Additions, cut_spans
from penstock.otlp.span_columns import span_table
from penstock.otlp.span_scan import ScannedRequests, locate_spans, scan_requests
from penstock.otlp.span_table import Needs, SpanTable, Text, ValueKind, Values
from tests.otlp.messages import listed, requests

NEEDS = Needs(
    frozenset(Text), frozenset(["k", "http.status"]), frozenset(["service.name", "k"]), True, frozenset(["k"])
)
KINDS = {
    "string_value": ValueKind.STRING, "bool_value": ValueKind.BOOL, "int_value": ValueKind.INT,
    "double_value": ValueKind.DOUBLE, "array_value": ValueKind.ARRAY, "kvlist_value": ValueKind.MAP,
    "bytes_value": ValueKind.BYTES, None: ValueKind.EMPTY,
}  # fmt: skip


def scanned(*bodies: bytes) -> tuple[np.ndarray, ScannedRequests]:
    buffer = np.frombuffer(b"".join(bodies), np.uint8)
    buffer.flags.writeable = False
    return buffer, scan_requests(buffer, np.cumsum([0, *(len(body) for body in bodies)]))


def number(data: bytes, size: int) -> int:
    return int.from_bytes(data, "big") if len(data) == size else 0


@given(st.lists(requests(), max_size=3))
def test_every_span_is_found_with_its_ids_times_and_status(found: list[ExportTraceServiceRequest]) -> None:
    _, scan = scanned(*(each.SerializeToString() for each in found))
    expected = [(row, at, span) for row, each in enumerate(found) for at, (_, _, span) in enumerate(listed(each), 1)]
    spans = scan.spans
    assert not scan.broken.any()
    assert list(zip(spans.request.tolist(), spans.number.tolist(), strict=True)) == [each[:2] for each in expected]
    for row, (_, _, span) in enumerate(expected):
        good = len(span.trace_id) == 16 and any(span.trace_id) and len(span.span_id) == 8 and any(span.span_id)
        assert spans.well_named[row] == good
        assert int(spans.trace_high[row]) << 64 | int(spans.trace_low[row]) == number(span.trace_id, 16)
        assert spans.span_id[row] == number(span.span_id, 8)
        assert spans.parent_id[row] == number(span.parent_span_id, 8)
        times = span.start_time_unix_nano, span.end_time_unix_nano
        assert (spans.start_time[row], spans.end_time[row]) == times
        assert (spans.kind[row], spans.status[row], spans.flags[row]) == (span.kind, span.status.code, span.flags)


def assert_same(values: Values, row: int, attributes: list, key: str) -> None:
    first = next((each.value for each in attributes if each.key == key), None)
    kind = ValueKind.ABSENT if first is None else KINDS[first.WhichOneof("value")]
    assert values.kind[row] == kind
    if kind is ValueKind.STRING:
        assert values.texts[row].as_py() == first.string_value
    elif kind is ValueKind.INT:
        assert values.integers[row] == first.int_value
    elif kind is ValueKind.BOOL:
        assert values.integers[row] == first.bool_value
    elif kind is ValueKind.DOUBLE:
        assert values.doubles[row].tobytes() == np.float64(first.double_value).tobytes()
    if kind is not ValueKind.STRING:
        assert values.texts[row].as_py() is None


@given(requests())
def test_the_columns_of_a_table_are_those_of_the_messages(request_: ExportTraceServiceRequest) -> None:
    buffer, scan = scanned(request_.SerializeToString())
    table: SpanTable = span_table(buffer, scan, NEEDS)
    found = listed(request_)
    assert len(table) == len(found)
    for row, (group, scope, span) in enumerate(found):
        for key in NEEDS.span_attributes:
            assert_same(table.attributes[key], row, list(span.attributes), key)
        for key in NEEDS.resource_attributes:
            assert_same(table.resource_attributes[key], row, list(group.resource.attributes), key)
        texts = [span.name, span.trace_state, span.status.message, scope.scope.name, scope.scope.version]
        assert [table.texts[text][row].as_py() for text in Text] == texts
    assert table.events is not None
    events = [(row, event) for row, (_, _, span) in enumerate(found) for event in span.events]
    assert table.events.span.tolist() == [row for row, _ in events]
    assert table.events.names.to_pylist() == [event.name for _, event in events]
    assert table.events.times.tolist() == [event.time_unix_nano for _, event in events]
    for row, (_, event) in enumerate(events):
        assert_same(table.events.attributes["k"], row, list(event.attributes), "k")


@given(requests(), st.data())
def test_a_span_that_is_cut_out_keeps_its_resource_and_scope(
    request_: ExportTraceServiceRequest, data: st.DataObject
) -> None:
    buffer, scan = scanned(request_.SerializeToString())
    found = listed(request_)
    rows = np.array(data.draw(st.lists(st.sampled_from(range(len(found))), unique=True)) if found else [], np.int64)
    extra = Span(dropped_links_count=7).SerializeToString()
    text = np.frombuffer(extra, np.uint8)
    begin, end = np.zeros(len(rows), np.int64), np.full(len(rows), len(extra))
    cut = cut_spans(buffer, scan, rows, Additions(text, begin, end)).to_pylist()
    for row, body in zip(rows.tolist(), cut, strict=True):
        group, scope, span = found[row]
        expected = ExportTraceServiceRequest()
        wanted = expected.resource_spans.add()
        wanted.CopyFrom(ResourceSpans(resource=group.resource, schema_url=group.schema_url))
        inner = wanted.scope_spans.add(schema_url=scope.schema_url)
        if scope.HasField("scope"):
            inner.scope.CopyFrom(scope.scope)
        inner.spans.add().CopyFrom(span)
        inner.spans[0].dropped_links_count = 7
        assert ExportTraceServiceRequest.FromString(body) == expected


@given(st.lists(requests(), max_size=3))
def test_attributes_found_on_the_way_are_those_that_are_looked_for_later(
    found: list[ExportTraceServiceRequest],
) -> None:
    bodies = [each.SerializeToString() for each in found]
    buffer, plain = scanned(*bodies)
    keys = sorted(NEEDS.span_attributes)
    at_once = scan_requests(buffer, np.cumsum([0, *(len(body) for body in bodies)]), keys)
    needs = Needs(span_attributes=NEEDS.span_attributes)
    later, now = span_table(buffer, plain, needs).attributes, span_table(buffer, at_once, needs).attributes
    for key in keys:
        assert now[key].kind.tolist() == later[key].kind.tolist()
        assert now[key].integers.tolist() == later[key].integers.tolist()
        assert now[key].doubles.tobytes() == later[key].doubles.tobytes()
        assert now[key].texts.equals(later[key].texts)


def delimited(field: int, content: bytes) -> bytes:
    size = bytes([len(content)]) if len(content) < 128 else bytes([len(content) & 0x7F | 0x80, len(content) >> 7])
    return bytes([field << 3 | 2]) + size + content


KEY, OTHER_KEY, VALUE, LONG_VALUE = (
    b"\x0a\x01k",
    b"\x0a\x01x",
    b"\x12\x03\x0a\x01v",
    delimited(2, delimited(1, b"w" * 130)),
)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        (KEY + VALUE, "v"),
        (VALUE + KEY, "v"),
        (OTHER_KEY + VALUE + KEY, "v"),
        (KEY + VALUE + OTHER_KEY, None),
        (KEY + LONG_VALUE, "w" * 130),
        (KEY + LONG_VALUE + VALUE, "v"),
        (KEY + b"\x18\x07" + VALUE, "v"),
        (KEY + b"\x12\x05\x18\x07\x0a\x01v", "v"),
        (KEY, None),
    ],
)
def test_an_attribute_is_found_however_it_is_written(attribute: bytes, value: str | None) -> None:
    """Of a field that is there twice, the last counts; of a choice, the last that was made."""
    body = delimited(1, delimited(2, delimited(2, delimited(9, attribute))))
    (span,) = (span for _, _, span in listed(ExportTraceServiceRequest.FromString(body)))
    buffer = np.frombuffer(body, np.uint8)
    found = scan_requests(buffer, np.array([0, len(body)]), ["k"]).attributes["k"]
    assert_same(found, 0, list(span.attributes), "k")
    assert found.texts.to_pylist() == [value]
    assert found.integers.tolist() == [0]


@given(st.lists(requests(), max_size=3))
def test_spans_are_located_where_a_scan_finds_them(found: list[ExportTraceServiceRequest]) -> None:
    bodies = [each.SerializeToString() for each in found]
    buffer, scan = scanned(*bodies)
    located = locate_spans(buffer, np.cumsum([0, *(len(body) for body in bodies)]))
    for name in ("request", "number", "begin", "end", "resource", "scope"):
        assert getattr(located.spans, name).tolist() == getattr(scan.spans, name).tolist()
    for one, other in ((located.resources, scan.resources), (located.scopes, scan.scopes)):
        assert (one.begin.tolist(), one.end.tolist()) == (other.begin.tolist(), other.end.tolist())
    assert (located.broken.tolist(), located.doubled.tolist()) == (scan.broken.tolist(), scan.doubled.tolist())


def understood(body: bytes) -> ExportTraceServiceRequest | None:
    try:
        return ExportTraceServiceRequest.FromString(body)
    except DecodeError:
        return None


@settings(max_examples=300)
@given(requests(), st.randoms(use_true_random=False))
def test_damaged_bytes_never_mislead_the_scanner(request_: ExportTraceServiceRequest, chance: random.Random) -> None:
    """What a reader of messages takes is never broken, and has the same spans; what comes after it is found as ever."""
    body = bytearray(request_.SerializeToString())
    for _ in range(chance.randint(1, 3)):
        if body and chance.random() < 0.5:
            body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
        else:
            del body[chance.randrange(len(body) + 1) :]
    whole = request_.SerializeToString()
    buffer, scan = scanned(bytes(body), whole)
    message = understood(bytes(body))
    assert int((scan.spans.request == 1).sum()) == len(listed(request_))
    if message is not None:
        assert not scan.broken[0]
        assert int((scan.spans.request == 0).sum()) == len(listed(message))
    span_table(buffer, scan, NEEDS)


@pytest.mark.parametrize(
    ("body", "broken"),
    [
        (b"", False),
        (b"\x0a\x00", False),
        (b"\x0a\x02\x12\x00", False),
        (b"\x0a", True),
        (b"\x0a\x05\x12", True),
        (b"\x00", True),
        (b"\xff" * 11, True),
        (b"\x0b\x0c", False),  # a group, of which nothing is known
        (b"\x0b" * 5000, True),
        (b"\x0c", True),
        (b"\x0f", True),
    ],
)
def test_bytes_at_the_edge_of_being_a_request(body: bytes, broken: bool) -> None:
    _, scan = scanned(body)
    assert scan.broken.tolist() == [broken]
    assert len(scan.spans.begin) == 0
