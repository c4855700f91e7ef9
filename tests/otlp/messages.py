"""Trace requests to try things with: random ones, and large ones."""

from __future__ import annotations

from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

TEXTS = st.text(max_size=6)
KEYS = st.sampled_from(["service.name", "http.status", "k", "", "schlüssel"]) | TEXTS


# Each is made once. Hypothesis checks one that is made for every draw every time, which takes longer than the draw.
_PLAIN = st.one_of(
    st.builds(lambda v: AnyValue(string_value=v), TEXTS),
    st.builds(lambda v: AnyValue(bool_value=v), st.booleans()),
    st.builds(lambda v: AnyValue(int_value=v), st.integers(-(2**63), 2**63 - 1)),
    st.builds(lambda v: AnyValue(double_value=v), st.floats()),
    st.builds(lambda v: AnyValue(bytes_value=v), st.binary(max_size=4)),
    st.just(AnyValue()),
)
VALUES = st.recursive(
    _PLAIN,
    lambda inner: st.one_of(
        st.builds(lambda v: AnyValue(array_value=ArrayValue(values=v)), st.lists(inner, max_size=2)),
        st.builds(lambda k, v: AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key=k, value=v)])), TEXTS, inner),
    ),
    max_leaves=3,
)
ATTRIBUTES = st.lists(st.builds(lambda k, v: KeyValue(key=k, value=v), KEYS, VALUES), max_size=4)
IDS16 = st.binary(min_size=16, max_size=16) | st.sampled_from([b"", bytes(16), b"short", b"x" * 17])
IDS8 = st.binary(min_size=8, max_size=8) | st.sampled_from([b"", bytes(8), b"x" * 9])
EVENTS = st.builds(
    lambda t, n, a: Span.Event(time_unix_nano=t, name=n, attributes=a), st.integers(0, 2**64 - 1), TEXTS, ATTRIBUTES
)
LINKS = st.builds(lambda t, s, a: Span.Link(trace_id=t, span_id=s, attributes=a), IDS16, IDS8, ATTRIBUTES)


TIMES = st.integers(0, 2**64 - 1) | st.just(0)
SPANS = st.builds(
    Span,
    trace_id=IDS16,
    span_id=IDS8,
    parent_span_id=IDS8,
    trace_state=TEXTS,
    name=TEXTS,
    kind=st.integers(0, 5),
    start_time_unix_nano=TIMES,
    end_time_unix_nano=TIMES,
    attributes=ATTRIBUTES,
    events=st.lists(EVENTS, max_size=2),
    links=st.lists(LINKS, max_size=1),
    status=st.none() | st.builds(Status, code=st.integers(0, 2), message=TEXTS),
    flags=st.integers(0, 2**32 - 1),
    dropped_attributes_count=st.integers(0, 3),
)


def scope_groups() -> st.SearchStrategy[ScopeSpans]:
    scopes = st.builds(lambda n, v, a: InstrumentationScope(name=n, version=v, attributes=a), TEXTS, TEXTS, ATTRIBUTES)
    return st.builds(
        lambda scope, found, url: ScopeSpans(scope=scope, spans=found, schema_url=url),
        scopes | st.none(), st.lists(SPANS, max_size=3), TEXTS,
    )  # fmt: skip


def requests() -> st.SearchStrategy[ExportTraceServiceRequest]:
    def group(found: list[KeyValue], scopes: list[ScopeSpans], url: str) -> ResourceSpans:
        return ResourceSpans(resource=Resource(attributes=found), scope_spans=scopes, schema_url=url)

    groups = st.builds(group, ATTRIBUTES, st.lists(scope_groups(), max_size=2), TEXTS)
    return st.builds(lambda found: ExportTraceServiceRequest(resource_spans=found), st.lists(groups, max_size=2))


def listed(request: ExportTraceServiceRequest) -> list[tuple[ResourceSpans, ScopeSpans, Span]]:
    """The spans of a request, each with its groups."""
    return [
        (group, scope, span) for group in request.resource_spans for scope in group.scope_spans for span in scope.spans
    ]
