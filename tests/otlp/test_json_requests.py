"""OTLP/JSON becomes the same message as protobuf, and what it does not allow is named with its place."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    NumberDataPoint,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from penstock.otlp.json_requests import BadJsonRequest, Signal, to_protobuf

REQUESTS: dict[Signal, type[Any]] = {
    Signal.TRACES: ExportTraceServiceRequest,
    Signal.LOGS: ExportLogsServiceRequest,
    Signal.METRICS: ExportMetricsServiceRequest,
}
TRACE, SPAN = bytes.fromhex("5b8efff798038103d269b633813fc60c"), bytes.fromhex("eee19b7ec3c1b174")


def in_span(span: str) -> bytes:
    return b'{"resourceSpans":[{"scopeSpans":[{"spans":[%b]}]}]}' % span.encode()


def in_value(value: str) -> bytes:
    return in_span(f'{{"attributes":[{{"key":"k","value":{value}}}]}}')


def in_log(record: str) -> bytes:
    return b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[%b]}]}]}' % record.encode()


def in_metric(metric: str) -> bytes:
    return b'{"resourceMetrics":[{"scopeMetrics":[{"metrics":[%b]}]}]}' % metric.encode()


def first_span(encoded: bytes) -> Span:
    return ExportTraceServiceRequest.FromString(encoded).resource_spans[0].scope_spans[0].spans[0]


SPANS = [
    ("{}", Span()),
    ('{"traceId":"5b8efff798038103d269b633813fc60c"}', Span(trace_id=TRACE)),
    ('{"traceId":"5B8EFFF798038103D269B633813FC60C"}', Span(trace_id=TRACE)),
    ('{"spanId":"EEE19b7ec3c1b174"}', Span(span_id=SPAN)),
    ('{"parentSpanId":"eee19b7ec3c1b174"}', Span(parent_span_id=SPAN)),
    ('{"parentSpanId":""}', Span()),
    ('{"traceId":"00"}', Span(trace_id=b"\0")),
    ('{"trace_id":"5b8efff798038103d269b633813fc60c"}', Span()),
    ('{"start_time_unix_nano":"1"}', Span()),
    ('{"startTimeUnixNano":"1544712660000000001"}', Span(start_time_unix_nano=1544712660000000001)),
    ('{"startTimeUnixNano":1544712660000000001}', Span(start_time_unix_nano=1544712660000000001)),
    ('{"endTimeUnixNano":"18446744073709551615"}', Span(end_time_unix_nano=2**64 - 1)),
    ('{"endTimeUnixNano":18446744073709551615}', Span(end_time_unix_nano=2**64 - 1)),
    ('{"endTimeUnixNano":1e3}', Span(end_time_unix_nano=1000)),
    ('{"kind":2}', Span(kind=Span.SPAN_KIND_SERVER)),
    ('{"kind":99}', Span(kind=99)),  # type: ignore[arg-type]
    ('{"kind":0,"name":"","droppedLinksCount":0}', Span()),
    ('{"kind":null,"name":null,"attributes":null,"status":null}', Span()),
    ('{"status":{}}', Span(status=Status())),
    ('{"status":{"code":2,"message":"no"}}', Span(status=Status(code=Status.STATUS_CODE_ERROR, message="no"))),
    ('{"name":"a","unknown":{"deep":[1,{"x":null}]}}', Span(name="a")),
    ('{"name":"first","name":"last"}', Span(name="last")),
    ('{"name":"\\u00e9\\ud83d\\ude00"}', Span(name="é😀")),
    ('{"flags":257,"droppedAttributesCount":"4294967295"}', Span(flags=257, dropped_attributes_count=2**32 - 1)),
    ('{"events":[{"timeUnixNano":"5","name":"e"}]}', Span(events=[Span.Event(time_unix_nano=5, name="e")])),
    (
        '{"links":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","traceState":"a=b"}]}',
        Span(links=[Span.Link(trace_id=TRACE, span_id=SPAN, trace_state="a=b")]),
    ),
    ('{"traceState":"a=1","attributes":[]}', Span(trace_state="a=1")),
]


@pytest.mark.parametrize(("text", "span"), SPANS)
def test_a_span_is_the_same_as_in_protobuf(text: str, span: Span) -> None:
    assert first_span(to_protobuf("traces", in_span(text))) == span


VALUES = [
    ('{"stringValue":"x"}', AnyValue(string_value="x")),
    ('{"stringValue":""}', AnyValue(string_value="")),
    ('{"boolValue":false}', AnyValue(bool_value=False)),
    ('{"boolValue":true}', AnyValue(bool_value=True)),
    ('{"intValue":"9223372036854775807"}', AnyValue(int_value=2**63 - 1)),
    ('{"intValue":9223372036854775807}', AnyValue(int_value=2**63 - 1)),
    ('{"intValue":9007199254740993}', AnyValue(int_value=2**53 + 1)),
    ('{"intValue":"-9223372036854775808"}', AnyValue(int_value=-(2**63))),
    ('{"intValue":-1}', AnyValue(int_value=-1)),
    ('{"intValue":0}', AnyValue(int_value=0)),
    ('{"intValue":-0.0}', AnyValue(int_value=0)),
    ('{"doubleValue":1.5}', AnyValue(double_value=1.5)),
    ('{"doubleValue":3}', AnyValue(double_value=3.0)),
    ('{"doubleValue":"1.5e3"}', AnyValue(double_value=1500.0)),
    ('{"doubleValue":"Infinity"}', AnyValue(double_value=math.inf)),
    ('{"doubleValue":"-Infinity"}', AnyValue(double_value=-math.inf)),
    ('{"doubleValue":0}', AnyValue(double_value=0.0)),
    ('{"bytesValue":"+/8="}', AnyValue(bytes_value=b"\xfb\xff")),
    ('{"bytesValue":"-_8"}', AnyValue(bytes_value=b"\xfb\xff")),
    ('{"bytesValue":""}', AnyValue(bytes_value=b"")),
    ('{"intValue":null,"stringValue":"x"}', AnyValue(string_value="x")),
    ("{}", AnyValue()),
    ('{"arrayValue":{}}', AnyValue(array_value=ArrayValue())),
    (
        '{"arrayValue":{"values":[{"intValue":1},{}]}}',
        AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=1), AnyValue()])),
    ),
    (
        '{"kvlistValue":{"values":[{"key":"a","value":{"boolValue":true}}]}}',
        AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="a", value=AnyValue(bool_value=True))])),
    ),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_a_value_is_the_same_as_in_protobuf(text: str, value: AnyValue) -> None:
    assert first_span(to_protobuf("traces", in_value(text))).attributes[0].value == value


def test_a_number_that_is_none_comes_as_text() -> None:
    found = first_span(to_protobuf("traces", in_value('{"doubleValue":"NaN"}'))).attributes[0].value
    assert math.isnan(found.double_value)


LOGS = [
    ('{"severityNumber":17,"severityText":"E"}', LogRecord(severity_number=17, severity_text="E")),  # type: ignore[arg-type]
    ('{"body":{"stringValue":"hi"}}', LogRecord(body=AnyValue(string_value="hi"))),
    ('{"spanId":"eee19b7ec3c1b174"}', LogRecord(span_id=SPAN)),
    ('{"observedTimeUnixNano":"7","flags":1}', LogRecord(observed_time_unix_nano=7, flags=1)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "record"), LOGS)
def test_a_log_record_is_the_same_as_in_protobuf(text: str, record: LogRecord) -> None:
    request = ExportLogsServiceRequest.FromString(to_protobuf(Signal.LOGS, in_log(text)))
    assert request.resource_logs[0].scope_logs[0].log_records[0] == record


def test_data_points_are_the_same_as_in_protobuf() -> None:
    text = """{"name":"m","unit":"s","histogram":{"aggregationTemporality":2,"dataPoints":[{"count":"3","sum":0,
        "bucketCounts":["1",2,"0"],"explicitBounds":[0.5,1,"Infinity"],"min":-0.5,
        "exemplars":[{"asInt":"-5","spanId":"eee19b7ec3c1b174"}]}]}}"""
    request = ExportMetricsServiceRequest.FromString(to_protobuf("metrics", in_metric(text)))
    point = request.resource_metrics[0].scope_metrics[0].metrics[0].histogram.data_points[0]
    expected = HistogramDataPoint(count=3, sum=0.0, bucket_counts=[1, 2, 0], explicit_bounds=[0.5, 1, math.inf])
    expected.min = -0.5
    expected.exemplars.add(as_int=-5, span_id=SPAN)
    assert point == expected


def test_zeros_that_mean_something_are_kept() -> None:
    text = '{"gauge":{"dataPoints":[{"asInt":"0"},{"asDouble":0}]}}'
    request = ExportMetricsServiceRequest.FromString(to_protobuf("metrics", in_metric(text)))
    points = request.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points
    assert list(points) == [NumberDataPoint(as_int=0), NumberDataPoint(as_double=0.0)]


def test_a_negative_scale_is_kept() -> None:
    text = '{"exponentialHistogram":{"dataPoints":[{"scale":-3,"positive":{"offset":-1,"bucketCounts":["300"]}}]}}'
    request = ExportMetricsServiceRequest.FromString(to_protobuf("metrics", in_metric(text)))
    point = request.resource_metrics[0].scope_metrics[0].metrics[0].exponential_histogram.data_points[0]
    expected = ExponentialHistogramDataPoint(scale=-3)
    expected.positive.offset = -1
    expected.positive.bucket_counts.append(300)
    assert point == expected


WRONG = [
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b'{"a":"\xff"}', "not JSON"),
    (b"[]", "an array where an object was expected"),
    (b"7", "7 where an object was expected"),
    (b'{"resourceSpans":{}}', "resourceSpans: an object where an array was expected"),
    (b'{"resourceSpans":[null]}', "resourceSpans[0]: null where an object was expected"),
    (in_span('{"traceId":"5b8"}'), "resourceSpans[0].scopeSpans[0].spans[0].traceId: \"5b8\" where an id in hex"),
    (in_span('{"traceId":"zz"}'), "an id in hex"),
    (in_span('{"traceId":"5b 8e"}'), "an id in hex"),
    (in_span('{"traceId":"\\u0661\\u0661"}'), "an id in hex"),
    (in_span('{"spanId":12}'), "spanId: 12 where an id in hex"),
    (in_span('{"kind":"SPAN_KIND_SERVER"}'), "enums are numbers"),
    (in_span('{"kind":"2"}'), "enums are numbers"),
    (in_span('{"kind":true}'), "enums are numbers"),
    (in_span('{"kind":4294967296}'), "an integer from"),
    (in_span('{"name":5}'), "spans[0].name: 5 where a text"),
    (in_span('{"name":["a"]}'), "an array where a text"),
    (in_span('{"startTimeUnixNano":-1}'), "an integer from 0 to 18446744073709551615"),
    (in_span('{"startTimeUnixNano":18446744073709551616}'), "an integer"),
    (in_span('{"startTimeUnixNano":"18446744073709551616"}'), "an integer from"),
    (in_span('{"startTimeUnixNano":1.5}'), "1.5 where an integer"),
    (in_span('{"startTimeUnixNano":" 1"}'), "an integer"),
    (in_span('{"startTimeUnixNano":"1_0"}'), "an integer"),
    (in_span('{"startTimeUnixNano":"\\u0661"}'), "an integer"),
    (in_span('{"startTimeUnixNano":""}'), "an integer"),
    (in_span('{"startTimeUnixNano":true}'), "true where an integer"),
    (in_span('{"startTimeUnixNano":"%s"}' % ("1" * 100_000)), "an integer"),
    (in_span('{"flags":4294967296}'), "an integer from 0 to 4294967295"),
    (in_span('{"status":[]}'), "status: an array where an object"),
    (in_value('{"intValue":9223372036854775808}'), "attributes[0].value.intValue: 9223372036854775808 where"),
    (in_value('{"intValue":1e19}'), "an integer"),
    (in_value('{"boolValue":1}'), "1 where true or false"),
    (in_value('{"boolValue":"true"}'), "true or false"),
    (in_value('{"doubleValue":"nan"}'), "a number, NaN"),
    (in_value('{"doubleValue":"1e999"}'), "a number"),
    (in_value('{"doubleValue":"0x1"}'), "a number"),
    (in_value('{"doubleValue":true}'), "a number"),
    (in_value('{"bytesValue":"*"}'), "bytes in base64"),
    (in_value('{"bytesValue":"A"}'), "bytes in base64"),
    (in_value('{"bytesValue":7}'), "bytes in base64"),
    (in_value('{"stringValue":"a","intValue":1}'), "has both stringValue and intValue"),
    (in_value('{"arrayValue":{"values":[{"intValue":1},{"intValue":"x"}]}}'), "arrayValue.values[1].intValue"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "problem"), WRONG)
def test_what_is_wrong_is_named_with_its_place(body: bytes, problem: str) -> None:
    with pytest.raises(BadJsonRequest) as caught:
        to_protobuf("traces", body)
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 400


def nested(levels: int, kind: str) -> bytes:
    value = '{"intValue":1}'
    for _ in range(levels):
        if kind == "array":
            value = f'{{"arrayValue":{{"values":[{value}]}}}}'
        else:
            value = f'{{"kvlistValue":{{"values":[{{"key":"k","value":{value}}}]}}}}'
    return in_value(value)


@pytest.mark.parametrize(("kind", "allowed"), [("array", 47), ("kvlist", 31)])
def test_values_nest_as_deep_as_protobuf_reads_them(kind: str, allowed: int) -> None:
    for levels in range(allowed + 1):
        ExportTraceServiceRequest.FromString(to_protobuf("traces", nested(levels, kind)))
    for levels in (*range(allowed + 1, allowed + 5), 150):
        with pytest.raises(BadJsonRequest, match="nested deeper"):
            to_protobuf("traces", nested(levels, kind))


def test_nesting_beyond_what_json_reads_is_an_error_too() -> None:
    for body in (b"[" * 100_000, b'{"a":' * 100_000, nested(5000, "array")):
        with pytest.raises(BadJsonRequest):
            to_protobuf("traces", body)


SCALARS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_DOUBLE: st.floats(width=64, allow_nan=False) | st.just(math.nan),
    FieldDescriptor.TYPE_FIXED64: st.integers(0, 2**64 - 1),
    FieldDescriptor.TYPE_UINT64: st.integers(0, 2**64 - 1),
    FieldDescriptor.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_SFIXED64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_FIXED32: st.integers(0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_SINT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_ENUM: st.integers(0, 30),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_STRING: st.text(max_size=8),
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=17),
}


def fill(draw: st.DrawFn, message: Any, levels: int) -> None:
    """Give a message random content."""
    for field in message.DESCRIPTOR.fields:
        if draw(st.integers(0, 2 if levels > 4 else 4)):
            continue
        count = draw(st.integers(1, 2)) if field.is_repeated else 1
        for _ in range(count):
            if field.message_type is not None:
                if levels:
                    inner = getattr(message, field.name)
                    inner = inner.add() if field.is_repeated else inner
                    inner.SetInParent()
                    fill(draw, inner, levels - 1)
            elif field.is_repeated:
                getattr(message, field.name).append(draw(SCALARS[field.type]))
            else:
                setattr(message, field.name, draw(SCALARS[field.type]))


def as_otlp_json(message: Message) -> bytes:
    """Protobuf's own JSON, with the ids in hex."""

    def hexed(value: Any) -> Any:
        if isinstance(value, list):
            return [hexed(element) for element in value]
        if not isinstance(value, dict):
            return value
        ids = ("traceId", "spanId", "parentSpanId")
        return {k: base64.b64decode(v).hex() if k in ids else hexed(v) for k, v in value.items()}

    return json.dumps(hexed(MessageToDict(message, use_integers_for_enums=True))).encode()


@pytest.mark.parametrize("signal", Signal)
@given(data=st.data())
@settings(max_examples=150)
def test_every_message_survives_the_way_through_json(signal: Signal, data: st.DataObject) -> None:
    @st.composite
    def requests(draw: st.DrawFn) -> Any:
        request = REQUESTS[signal]()
        repeated = getattr(request, request.DESCRIPTOR.fields[0].name)
        fill(draw, repeated.add(), 9)
        return request

    request = data.draw(requests())
    body = as_otlp_json(request)
    encoded = to_protobuf(signal, body)
    assert encoded == request.SerializeToString(deterministic=True)
    assert to_protobuf(signal, body) == encoded


KEYS = ("resourceSpans", "scopeSpans", "spans", "attributes", "key", "value", "arrayValue", "values", "name", "traceId")
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(KEYS), inner),
)


@given(ANYTHING)
def test_whatever_json_comes_it_is_read_or_refused(value: Any) -> None:
    try:
        encoded = to_protobuf("traces", json.dumps(value).encode())
    except BadJsonRequest:
        return
    ExportTraceServiceRequest.FromString(encoded)
