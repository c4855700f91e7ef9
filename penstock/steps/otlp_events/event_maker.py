"""Log records and spans as events of addEvents, as the OpenTelemetry Collector's exporter for DataSet makes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from penstock.otlp.any_values import Json, any_value, attributes_object, text_of
from penstock.steps.otlp_events.config import OtlpEventsConfig

INFO = 3
_BY_NUMBER = (INFO, *(level for level in range(1, 7) for _ in range(4)))
"""By the severity number of a log record; 0 is none."""
_BY_TEXT = {
    "fine": 0, "finest": 0, "trace": 1, "debug": 2, "info": 3, "information": 3, "warn": 4, "warning": 4, "error": 5,
    "fatal": 6, "critical": 6, "emergency": 6,
}  # fmt: skip
_KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
_STATUS_CODES = ("unset", "ok", "error")
_SERVER_HOST = "serverHost"
_HOST_NAMES = (_SERVER_HOST, "host.name")
_LOGS = {"thread": {"id": "TL", "name": "logs"}, "log": {"id": "LL", "attrs": {}}}
_TRACES = {"thread": {"id": "TT", "name": "traces"}, "log": {"id": "LT", "attrs": {}}}

_LATEST = 2**63 - 1
"""Nanoseconds since 1970, as DataSet has them; OTLP has twice as many."""


class TooManyBytes(Exception):
    """The names of an event's attributes alone are more than a request may become."""


class Attributes(dict[str, Json]):
    """Counts what the names of its values have, which nested ones repeat."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._left = most

    def add(self, name: str, value: Json) -> None:
        """Raises ``TooManyBytes``."""
        self._left -= len(name)
        if self._left < 0:
            raise TooManyBytes
        self[name] = value


def severity(number: int, text: str) -> int:
    """0 to 6: by the number, or else by the text."""
    if number > 0:
        return _BY_NUMBER[number] if number < len(_BY_NUMBER) else INFO
    return _BY_TEXT.get(text.lower(), INFO)


@dataclass(frozen=True)
class Shared:
    """What all events of a resource and a scope have in common."""

    resource: Mapping[str, Json]
    scope_name: str
    scope: Mapping[str, Json]

    @classmethod
    def of(cls, resource: Resource, scope: InstrumentationScope) -> Shared:
        return cls(attributes_object(resource.attributes), scope.name, attributes_object(scope.attributes))


@dataclass(frozen=True)
class EventMaker:
    config: OtlpEventsConfig

    def log_event(self, shared: Shared, log: LogRecord, came: int) -> bytes:
        """``came``: when the request came, in nanoseconds since 1970, for a record that says no time."""
        attributes = Attributes(self.config.max_bytes)
        body = any_value(log.body)
        message = body if isinstance(body, str) else "" if body is None else text_of(body)
        if message:
            attributes["message"] = message
        if self.config.decompose_body and isinstance(body, dict):
            self._add(attributes, self.config.body_prefix, body)
        if log.dropped_attributes_count:
            attributes["dropped_attributes_count"] = log.dropped_attributes_count
        if log.observed_time_unix_nano:
            attributes["sca:observedTime"] = str(log.observed_time_unix_nano)
        if any(log.span_id):
            attributes["span_id"] = log.span_id.hex()
        if any(log.trace_id):
            attributes["trace_id"] = log.trace_id.hex()
        if self.config.resource:
            self._add(attributes, self.config.resource_prefix, shared.resource)
        if self.config.scope:
            if shared.scope_name:
                attributes["scope.name"] = shared.scope_name
            self._add(attributes, self.config.scope_prefix, shared.scope)
        self._add(attributes, "", attributes_object(log.attributes))
        ts = _first_time(log.time_unix_nano, log.observed_time_unix_nano, came)
        event = {"ts": str(ts), "sev": severity(log.severity_number, log.severity_text), **_LOGS}
        return self._event(event, attributes, shared)

    def span_event(self, shared: Shared, span: Span, came: int) -> bytes:
        start, end = span.start_time_unix_nano, span.end_time_unix_nano
        attributes = Attributes(self.config.max_bytes)
        attributes |= {
            "sca:schema": "tracing",
            "sca:schemVer": 1,
            "sca:type": "span",
            "name": span.name,
            "span_id": span.span_id.hex(),
        }
        if any(span.parent_span_id):
            attributes["parent_span_id"] = span.parent_span_id.hex()
        attributes |= {
            "trace_id": span.trace_id.hex(),
            "start_time_unix_nano": str(start),
            "end_time_unix_nano": str(end),
            "duration_nano": str(end - start),
            "kind": _named(_KINDS, span.kind),
            "status_code": _named(_STATUS_CODES, span.status.code),
            "status_message": span.status.message,
            **_resource_name(shared.resource),
        }
        self._add(attributes, "", attributes_object(span.attributes))
        return self._event({"ts": str(_first_time(start, came)), "sev": INFO, **_TRACES}, attributes, shared)

    def _event(self, event: Mapping[str, object], attributes: Attributes, shared: Shared) -> bytes:
        hosts = [attributes.pop(_SERVER_HOST, None), *(shared.resource.get(name) for name in _HOST_NAMES)]
        host = next((str(host) for host in (*hosts, self.config.server_host) if host not in (None, "")), None)
        of_host = {} if host is None else {_SERVER_HOST: host}
        return orjson.dumps({**event, **of_host, "attrs": attributes})

    def _add(self, attributes: Attributes, prefix: str, values: Mapping[str, Json]) -> None:
        """Add values with their names behind a prefix. What is nested has the names of all that it is in."""
        for name, value in values.items():
            self._add_value(attributes, prefix + name, value)

    def _add_value(self, attributes: Attributes, name: str, value: Json) -> None:
        if isinstance(value, dict):
            self._add(attributes, f"{name}{self.config.separator}", value)
        elif isinstance(value, list):
            for number, each in enumerate(value):
                self._add_value(attributes, f"{name}{self.config.separator}{number}", each)
        else:
            while name in attributes:
                name += self.config.suffix
            attributes.add(name, value)


def _first_time(*nanos: int) -> int:
    """The first of these that is a time, and one that DataSet can hold."""
    return next((each for each in nanos if 0 < each <= _LATEST), 0)


def _resource_name(resource: Mapping[str, Json]) -> Mapping[str, Json]:
    """What a span belongs to: a service, or else a process."""
    name = resource.get("service.name")
    if name is not None:
        return {"resource_name": name, "resource_type": "service"}
    if any(key.startswith("service") for key in resource):
        return {"resource_name": "", "resource_type": "service"}
    return {"resource_name": resource.get("process.pid", ""), "resource_type": "process"}


def _named(names: tuple[str, ...], number: int) -> str:
    return names[number] if 0 <= number < len(names) else str(number)
