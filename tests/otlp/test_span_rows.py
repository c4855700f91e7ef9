"""A span as a row of JSON: nothing of it is rounded, and everybody reads the same."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from penstock.otlp.span_rows import SpanRows, row_casts, span_row
from tests.support.otlp_requests import RESOURCES, SCOPES, SPANS, START, any_value, key_values, span

NOBODY, NOTHING = Resource(), InstrumentationScope()


def row_of(one: Span, resource: Resource = NOBODY, scope: InstrumentationScope = NOTHING, **form: bool) -> Any:
    rows = SpanRows(**form)
    return json.loads(rows.row(rows.shared(resource, scope), one))


def test_a_whole_span() -> None:
    one = Span(
        trace_id=bytes(range(16)), span_id=b"\x00\xab" + bytes(5) + b"\xff", parent_span_id=b"\x01" * 8,
        trace_state="a=1", flags=257, name="GET /", kind=Span.SPAN_KIND_SERVER,
        start_time_unix_nano=START, end_time_unix_nano=START + 1_500_000_001,
        attributes=key_values({"http.status_code": 500}), dropped_attributes_count=2,
        events=[Span.Event(name="boom", time_unix_nano=START, attributes=key_values({"n": 1}))],
        links=[Span.Link(trace_id=b"\x02" * 16, span_id=b"\x03" * 8, trace_state="b=2", flags=1)],
        status=Status(code=Status.STATUS_CODE_ERROR, message="no"),
    )  # fmt: skip
    resource = Resource(attributes=key_values({"service.name": "shop", "host": "h"}))
    scope = InstrumentationScope(name="lib", version="1.2", attributes=key_values({"s": True}))
    assert row_of(one, resource, scope, objects=True, nanoseconds=True) == {
        "trace_id": "000102030405060708090a0b0c0d0e0f", "span_id": "00ab0000000000ff",
        "parent_span_id": "0101010101010101", "name": "GET /", "kind": "SERVER",
        "start_time": "2025-11-13T02:13:20.123456789Z", "end_time": "2025-11-13T02:13:21.623456790Z",
        "start_time_unix_nano": START, "end_time_unix_nano": START + 1_500_000_001, "duration_ns": 1_500_000_001,
        "status_code": "ERROR", "status_message": "no", "trace_state": "a=1", "flags": 257,
        "attributes": {"http.status_code": 500}, "dropped_attributes_count": 2,
        "events": [{"name": "boom", "time": "2025-11-13T02:13:20.123456789Z", "attributes": {"n": 1}}],
        "links": [{"trace_id": "02" * 16, "span_id": "03" * 8, "trace_state": "b=2", "flags": 1, "attributes": {}}],
        "service_name": "shop", "resource_attributes": {"service.name": "shop", "host": "h"},
        "scope_name": "lib", "scope_version": "1.2", "scope_attributes": {"s": True},
    }  # fmt: skip


def test_a_span_that_says_little() -> None:
    row = row_of(Span(trace_id=b"\x01" * 16, span_id=b"\x01" * 8))
    empty = ("parent_span_id", "start_time", "end_time", "duration_ns", "service_name", "start_time_unix_nano")
    assert [row[name] for name in empty] == [None] * len(empty)
    assert (row["kind"], row["status_code"], row["events"], row["links"]) == ("UNSPECIFIED", "UNSET", [], [])
    assert (row["attributes"], row["resource_attributes"]) == ("{}", "{}")
    assert not any(name.startswith("dropped") for name in row)


VALUES: list[tuple[Any, str]] = [
    ("text", '"text"'),
    ("", '""'),
    ("\u0000ü\u2028", '"\\u0000ü\u2028"'),
    (True, "true"),
    (2**63 - 1, "9223372036854775807"),
    (-(2**63), "-9223372036854775808"),
    (2**53 + 1, "9007199254740993"),
    (0.1, "0.1"),
    (-0.0, "-0.0"),
    (5e-324, "5e-324"),
    (1.7976931348623157e308, "1.7976931348623157e+308"),
    (math.nan, '"NaN"'),
    (math.inf, '"Infinity"'),
    (-math.inf, '"-Infinity"'),
    (b"\x00\xff", '"AP8="'),
    (None, "null"),
    ([1, "a", [], {"k": None}], '[1,"a",[],{"k":null}]'),
    ({"a": {"b": [2**63 - 1]}}, '{"a":{"b":[9223372036854775807]}}'),
]


@pytest.mark.parametrize(("value", "text"), VALUES, ids=[text for _, text in VALUES])
def test_values_of_attributes(value: Any, text: str) -> None:
    assert row_of(span(attributes={"x": value}))["attributes"] == f'{{"x":{text}}}'


def test_of_attributes_with_one_key_the_first_counts() -> None:
    twice = [KeyValue(key="a", value=any_value(value)) for value in (1, 2)]
    one = span(attributes={"map": {}})
    one.attributes.extend(twice)
    one.attributes[0].value.kvlist_value.values.extend(twice)
    one.events.add().attributes.extend(twice)
    row = row_of(one)
    assert row["attributes"] == '{"map":{"a":1},"a":1}'
    assert row["events"][0]["attributes"] == {"a": 1}


TIMES = [
    (0, 5, None, "1970-01-01T00:00:00.000000005Z", None),
    (5, 0, "1970-01-01T00:00:00.000000005Z", None, None),
    (10**9, 10**9, "1970-01-01T00:00:01.000000000Z", "1970-01-01T00:00:01.000000000Z", 0),
    (START, START - 7, "2025-11-13T02:13:20.123456789Z", "2025-11-13T02:13:20.123456782Z", -7),
    (2**64 - 1, 1, "2554-07-21T23:34:33.709551615Z", "1970-01-01T00:00:00.000000001Z", 2 - 2**64),
    (1, 2**64 - 1, "1970-01-01T00:00:00.000000001Z", "2554-07-21T23:34:33.709551615Z", 2**64 - 2),
]


@pytest.mark.parametrize(("start", "end", "start_time", "end_time", "duration"), TIMES)
def test_times_are_exact(
    start: int, end: int, start_time: str | None, end_time: str | None, duration: int | None
) -> None:
    one = span(start_time_unix_nano=start, end_time_unix_nano=end)
    row = row_of(one, nanoseconds=True)
    assert (row["start_time"], row["end_time"], row["duration_ns"]) == (start_time, end_time, duration)
    cut = row_of(one)
    assert (cut["start_time"], cut["end_time"]) == tuple(time and f"{time[:-4]}Z" for time in (start_time, end_time))
    assert (cut["start_time_unix_nano"], cut["duration_ns"]) == (start or None, duration)


def test_a_kind_and_a_code_that_are_newer_than_this_are_numbers() -> None:
    row = row_of(span(kind=9, status=Status(code=7)))  # type: ignore[arg-type]
    assert (row["kind"], row["status_code"]) == ("9", "7")


@pytest.mark.parametrize(("value", "name"), [("shop", "shop"), (7, "7"), ({"a": 1}, '{"a":1}')])
def test_the_name_of_a_service_is_text(value: Any, name: str) -> None:
    assert row_of(span(), Resource(attributes=key_values({"service.name": value})))["service_name"] == name


def slow_object(attributes: Any) -> Any:
    """Of several with one key the first."""
    return {each.key: slow_value(each.value) for each in reversed(attributes)}


def slow_value(value: AnyValue) -> Any:
    match value.WhichOneof("value"):
        case None:
            return None
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case "array_value":
            return [slow_value(each) for each in value.array_value.values]
        case "kvlist_value":
            return slow_object(value.kvlist_value.values)
        case "double_value" if not math.isfinite(value.double_value):
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value.double_value)]
        case kind:
            return getattr(value, kind)


@settings(max_examples=200)
@given(RESOURCES, SCOPES, SPANS)
def test_a_row_says_what_the_span_says(resource: Resource, scope: InstrumentationScope, one: Span) -> None:
    rows = SpanRows(objects=True, nanoseconds=True)
    text = rows.row(rows.shared(resource, scope), one)
    assert b"\n" not in text
    row = json.loads(text)
    assert row["attributes"] == slow_object(one.attributes)
    assert row["resource_attributes"] == slow_object(resource.attributes)
    assert [event["attributes"] for event in row["events"]] == [slow_object(event.attributes) for event in one.events]
    assert [bytes.fromhex(link["trace_id"]) for link in row["links"]] == [link.trace_id for link in one.links]
    assert (bytes.fromhex(row["trace_id"]), bytes.fromhex(row["span_id"])) == (one.trace_id, one.span_id)
    assert bytes.fromhex(row["parent_span_id"] or "") == one.parent_span_id
    assert (row["name"], row["trace_state"], row["flags"]) == (one.name, one.trace_state, one.flags)
    for name, nanos in (("start_time", one.start_time_unix_nano), ("end_time", one.end_time_unix_nano)):
        assert row[f"{name}_unix_nano"] == (nanos or None)
        if nanos:
            second, fraction = row[name].removesuffix("Z").split(".")
            moment = datetime.fromisoformat(second).replace(tzinfo=UTC)
            assert int(moment.timestamp()) * 10**9 + int(fraction) == nanos
    in_text = json.loads(span_row(resource, scope, one))
    assert json.loads(in_text["attributes"]) == row["attributes"]
    assert json.loads(in_text["resource_attributes"]) == row["resource_attributes"]


def test_typed_destinations_are_asked_for_json_and_timestamps() -> None:
    assert row_casts() == {
        "/start_time": "timestamptz", "/end_time": "timestamptz", "/attributes": "json",
        "/resource_attributes": "json", "/scope_attributes": "json", "/events": "json", "/links": "json",
    }  # fmt: skip
    assert row_casts(objects=True, nanoseconds=True) == {
        "/start_time": "timestamp_ns", "/end_time": "timestamp_ns", "/events": "json", "/links": "json",
    }  # fmt: skip
