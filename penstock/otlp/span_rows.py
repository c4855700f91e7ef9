"""Spans as rows of JSON, for tables and files: one object per span, with its resource and scope in it.

What a row has is in the table of ``penstock/steps/spans/README.md``. Every value is exact: 64-bit integers never become
doubles, doubles have the fewest digits that lead back to them, and NaN and the infinities, which JSON lacks, are the
strings ``NaN``, ``Infinity`` and ``-Infinity``. Bytes are Base64. Of attributes with the same key the first one counts.

Attributes are a JSON object in a string (``objects=False``): tables then have one JSON column of them (``row_casts``),
because an object would become one column for each of its keys.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from penstock.otlp.any_values import Json, attributes_object, exact_moment, moment, text_of

_KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
_STATUS_CODES = ("UNSET", "OK", "ERROR")
_DROPPED = ("dropped_attributes_count", "dropped_events_count", "dropped_links_count")


def row_casts(objects: bool = False, nanoseconds: bool = False) -> dict[str, str]:
    """The SQL types that typed destinations must give to columns of these rows, by JSON path."""
    moment = "timestamp_ns" if nanoseconds else "timestamptz"
    documents = () if objects else ("attributes", "resource_attributes", "scope_attributes")
    return {
        **{f"/{name}": moment for name in ("start_time", "end_time")},
        **{f"/{name}": "json" for name in (*documents, "events", "links")},
    }


class SpanRows:
    """Makes the rows. ``objects``: attributes are objects; ``nanoseconds``: the times have nine digits of a second and
    not six (which cut the rest off: ``start_time_unix_nano`` and ``end_time_unix_nano`` have all of it)."""

    def __init__(self, objects: bool = False, nanoseconds: bool = False) -> None:
        self._objects = objects
        self._nanoseconds = nanoseconds

    def shared(self, resource: Resource, scope: InstrumentationScope) -> bytes:
        """What the rows of all spans of a resource and a scope have in common; ``row`` takes it."""
        resource_attributes = attributes_object(resource.attributes)
        service = resource_attributes.get("service.name")
        members: dict[str, Json] = {
            "service_name": service if service is None or isinstance(service, str) else text_of(service),
            "scope_name": scope.name,
            "scope_version": scope.version,
            "resource_attributes": self._document(resource_attributes),
        }
        if scope.attributes:
            members["scope_attributes"] = self._document(attributes_object(scope.attributes))
        return orjson.dumps(members)[1:]

    def row(self, shared: bytes, span: Span) -> bytes:
        """The row of a span, as a JSON object on one line."""
        start, end, status = span.start_time_unix_nano, span.end_time_unix_nano, span.status
        members: dict[str, Json | orjson.Fragment] = {
            "trace_id": span.trace_id.hex(),
            "span_id": span.span_id.hex(),
            "parent_span_id": span.parent_span_id.hex() or None,
            "name": span.name,
            "kind": _named(_KINDS, span.kind),
            "start_time": self._moment(start),
            "end_time": self._moment(end),
            "duration_ns": _duration(start, end),
            "status_code": _named(_STATUS_CODES, status.code),
            "status_message": status.message,
            "attributes": self._document(attributes_object(span.attributes)),
            "events": [_event(event) for event in span.events],
            "links": [_link(link) for link in span.links],
            "trace_state": span.trace_state,
            "flags": span.flags,
            "start_time_unix_nano": start or None,
            "end_time_unix_nano": end or None,
        }
        for name in _DROPPED:
            if count := getattr(span, name):
                members[name] = count
        return orjson.dumps(members)[:-1] + b"," + shared

    def _document(self, attributes: dict[str, Json]) -> Json:
        return attributes if self._objects else orjson.dumps(attributes).decode()

    def _moment(self, nanos: int) -> str | None:
        return exact_moment(nanos) if self._nanoseconds else moment(nanos)


def span_row(resource: Resource, scope: InstrumentationScope, span: Span) -> bytes:
    """The row of one span."""
    rows = SpanRows()
    return rows.row(rows.shared(resource, scope), span)


def _duration(start: int, end: int) -> int | orjson.Fragment | None:
    """Below zero if the end is before the start: clocks are wrong sometimes, and nobody would know."""
    if not start or not end:
        return None
    duration = end - start
    # The difference of two 64-bit numbers may be one of 65 bits, which orjson does not write.
    return duration if duration >= -(2**63) else orjson.Fragment(str(duration))


def _event(event: Span.Event) -> Json:
    return {
        "name": event.name,
        "time": exact_moment(event.time_unix_nano),
        "attributes": attributes_object(event.attributes),
        **_dropped(event.dropped_attributes_count),
    }


def _link(link: Span.Link) -> Json:
    return {
        "trace_id": link.trace_id.hex(),
        "span_id": link.span_id.hex(),
        "trace_state": link.trace_state,
        "flags": link.flags,
        "attributes": attributes_object(link.attributes),
        **_dropped(link.dropped_attributes_count),
    }


def _dropped(count: int) -> Mapping[str, int]:
    return {"dropped_attributes_count": count} if count else {}


def _named(names: tuple[str, ...], number: int) -> str:
    """The name of an enum's value; of one that is newer than these names, its number."""
    return names[number] if 0 <= number < len(names) else str(number)
