"""Log records as rows of JSON, for tables and files: one object per record, with its resource and scope in it, as spans
have them (``span_rows.py``)."""

from __future__ import annotations

import orjson
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from penstock.otlp.any_values import Json, any_value, attributes_object, moment, text_of
from penstock.otlp.span_rows import SpanRows


def log_casts() -> dict[str, str]:
    """The SQL types that typed destinations must give to columns of these rows, beyond those of spans."""
    return {"/time": "timestamptz", "/observed_time": "timestamptz"}


class LogRows:
    def __init__(self) -> None:
        self._spans = SpanRows()

    def shared(self, resource: Resource, scope: InstrumentationScope) -> bytes:
        """What the rows of all records of a resource and a scope have in common; ``row`` takes it."""
        return self._spans.shared(resource, scope)

    def row(self, shared: bytes, log: LogRecord) -> bytes:
        """The row of a log record, as a JSON object on one line. A body that is no text is JSON in a string."""
        body = any_value(log.body)
        members: dict[str, Json] = {
            "trace_id": log.trace_id.hex() or None,
            "span_id": log.span_id.hex() or None,
            "time": moment(log.time_unix_nano),
            "observed_time": moment(log.observed_time_unix_nano),
            "severity_number": log.severity_number,
            "severity_text": log.severity_text,
            "event_name": log.event_name or None,
            "body": body if body is None or isinstance(body, str) else text_of(body),
            "attributes": text_of(attributes_object(log.attributes)),
            "flags": log.flags,
            "time_unix_nano": log.time_unix_nano or None,
            "observed_time_unix_nano": log.observed_time_unix_nano or None,
        }
        if log.dropped_attributes_count:
            members["dropped_attributes_count"] = log.dropped_attributes_count
        return orjson.dumps(members)[:-1] + b"," + shared
