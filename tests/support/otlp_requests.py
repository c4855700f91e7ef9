"""OTLP requests for tests: written in few words, read back span by span, and made up by hypothesis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from penstock.record import Record

PROTOBUF = "application/x-protobuf"
START = 1_763_000_000_123_456_789
UNKNOWN = bytes([0xFA, 0x3F, 3]) + b"new"
"""A field 1023 of three bytes, which no message has."""


def any_value(value: Any) -> AnyValue:
    match value:
        case None:
            return AnyValue()
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case str():
            return AnyValue(string_value=value)
        case bytes():
            return AnyValue(bytes_value=value)
        case list():
            made = AnyValue()
            made.array_value.SetInParent()
            made.array_value.values.extend(map(any_value, value))
            return made
        case _:
            made = AnyValue()
            made.kvlist_value.SetInParent()
            made.kvlist_value.values.extend(key_values(value))
            return made


def key_values(attributes: Mapping[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=any_value(value)) for key, value in attributes.items()]


def span(number: int = 1, **fields: Any) -> Span:
    """A span with an id made of a number; fields as protobuf has them, attributes as a dictionary."""
    attributes = key_values(fields.pop("attributes", {}))
    basic = {
        "trace_id": number.to_bytes(16, "big"), "span_id": number.to_bytes(8, "big"), "name": f"span {number}",
        "start_time_unix_nano": START, "end_time_unix_nano": START + number,
    }  # fmt: skip
    return Span(**{**basic, **fields}, attributes=attributes)


def resource_spans(service: str, *spans: Span, scope: str = "lib", **fields: Any) -> ResourceSpans:
    """Spans of one service, which has one more attribute, and one scope."""
    resource = Resource(attributes=key_values({"service.name": service, "host": "h"}))
    below = ScopeSpans(scope=InstrumentationScope(name=scope, version="1.0"), spans=spans)
    return ResourceSpans(resource=resource, scope_spans=[below], **fields)


def request(*resources: ResourceSpans) -> bytes:
    body: bytes = ExportTraceServiceRequest(resource_spans=resources).SerializeToString()
    return body


def one_span(number: int = 1, service: str = "shop", **fields: Any) -> bytes:
    return request(resource_spans(service, span(number, **fields)))


def record(data: bytes | None, namespace: str = "traces", content_type: str | None = PROTOBUF) -> Record:
    headers = {"token": "site", **({} if content_type is None else {"content_type": content_type})}
    return Record(data, namespace=namespace, headers=headers)


class Placed(NamedTuple):
    """A span with all that it stands below, as bytes."""

    resource: bytes
    resource_schema: str
    scope: bytes
    scope_schema: str
    span: bytes


def placed_spans(body: bytes) -> Iterator[Placed]:
    """Every span of a request, read by the library that everybody uses."""
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        for scope in resource.scope_spans:
            for each in scope.spans:
                yield Placed(
                    resource.resource.SerializeToString(deterministic=True),
                    resource.schema_url,
                    scope.scope.SerializeToString(deterministic=True),
                    scope.schema_url,
                    each.SerializeToString(deterministic=True),
                )


KEYS = st.sampled_from(["a", "b", "http.method", "größe", 'q"', "", "service.name"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(st.characters(codec="utf-8"), max_size=6)
    | st.binary(max_size=4)
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)
ATTRIBUTES = st.lists(st.builds(lambda key, value: KeyValue(key=key, value=any_value(value)), KEYS, VALUES), max_size=4)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
NANOS = st.sampled_from([0, 1, START, START + 1, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1)
COUNTS = st.integers(0, 3)

EVENTS = st.builds(Span.Event, name=TEXTS, time_unix_nano=NANOS, attributes=ATTRIBUTES, dropped_attributes_count=COUNTS)
LINKS = st.builds(
    Span.Link,
    trace_id=st.binary(min_size=16, max_size=16),
    span_id=st.binary(min_size=8, max_size=8),
    trace_state=TEXTS,
    attributes=ATTRIBUTES,
    flags=st.integers(0, 2**32 - 1),
)
SPANS = st.builds(
    Span,
    trace_id=st.binary(min_size=16, max_size=16).filter(any),
    span_id=st.binary(min_size=8, max_size=8).filter(any),
    parent_span_id=st.just(b"") | st.binary(min_size=8, max_size=8),
    trace_state=TEXTS,
    flags=st.integers(0, 2**32 - 1),
    name=TEXTS,
    kind=st.integers(0, 5),
    start_time_unix_nano=NANOS,
    end_time_unix_nano=NANOS,
    attributes=ATTRIBUTES,
    dropped_attributes_count=COUNTS,
    events=st.lists(EVENTS, max_size=2),
    links=st.lists(LINKS, max_size=2),
    status=st.builds(Status, message=TEXTS, code=st.integers(0, 2)),
)
RESOURCES = st.builds(Resource, attributes=ATTRIBUTES)
SCOPES = st.builds(InstrumentationScope, name=TEXTS, version=TEXTS, attributes=ATTRIBUTES)
REQUESTS = st.builds(
    ExportTraceServiceRequest,
    resource_spans=st.lists(
        st.builds(
            ResourceSpans,
            resource=RESOURCES,
            schema_url=st.sampled_from(["", "https://a"]),
            scope_spans=st.lists(
                st.builds(
                    ScopeSpans, scope=SCOPES, spans=st.lists(SPANS, max_size=3), schema_url=st.sampled_from(["", "u"])
                ),
                max_size=2,
            ),
        ),
        max_size=2,
    ),
)
