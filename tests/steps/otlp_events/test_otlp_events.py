"""``otlp_events`` makes an event of each log record and span, and every one of them is accounted for."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from penstock.destinations.dataset.event_mapping import EventMapper
from penstock.outcome import Outcome
from penstock.record import Record, entries, placed
from penstock.steps.otlp_events.config import OtlpEventsConfig
from penstock.steps.otlp_events.event_maker import severity
from penstock.steps.otlp_events.step import OtlpEvents
from penstock.testing.step import StepContract, kept
from tests.support.otlp_requests import PROTOBUF, any_value, key_values, one_span, record

START = 1_763_000_000_123_456_789


class TestOtlpEvents(StepContract):
    """What is of another namespace passes, whatever it is; the rest of this page is about logs and traces."""

    name = "otlp_events"
    reads_data = False
    adds = True
    configs: ClassVar[list[Any]] = [{}, {"resource": True, "decompose_body": True}]


def logs(*records: LogRecord, resource: dict[str, Any] | None = None, scope: dict[str, Any] | None = None) -> Record:
    of_scope = InstrumentationScope(name="lib", attributes=key_values(scope or {}))
    scoped = ScopeLogs(scope=of_scope, log_records=records)
    whole = ResourceLogs(resource=Resource(attributes=key_values(resource or {})), scope_logs=[scoped])
    data = ExportLogsServiceRequest(resource_logs=[whole]).SerializeToString()
    return Record(data, namespace="logs", headers={"content_type": PROTOBUF})


def log(body: Any = "hello", attributes: dict[str, Any] | None = None, **fields: Any) -> LogRecord:
    basic = {"time_unix_nano": START, "severity_number": 9}
    return LogRecord(**{**basic, **fields}, body=any_value(body), attributes=key_values(attributes or {}))


def batch_of(*records: Record) -> pa.RecordBatch:
    return placed(entries(records), 3, 100)


def apply(*records: Record, **options: Any) -> Outcome:
    return OtlpEvents(OtlpEventsConfig(**options)).apply(batch_of(*records))


def events(*records: Record, **options: Any) -> list[dict[str, Any]]:
    return [json.loads(row) for row in kept(apply(*records, **options))]


@pytest.mark.parametrize(
    ("number", "text", "level"),
    [
        (0, "", 3), (1, "", 1), (4, "", 1), (5, "", 2), (8, "", 2), (9, "", 3), (12, "", 3), (13, "", 4), (16, "", 4),
        (17, "", 5), (20, "", 5), (21, "", 6), (24, "", 6), (25, "", 3), (0, "WARN", 4), (0, "Fatal", 6),
        (0, "finest", 0), (0, "verbose", 3), (17, "info", 5),
    ],
)  # fmt: skip
def test_severities_of_24_levels_become_7(number: int, text: str, level: int) -> None:
    assert severity(number, text) == level


def test_a_log_record_is_an_event_as_the_collector_makes_it() -> None:
    entry = log("it broke", {"a": 1, "b": {"c": "x", "d": [1, 2]}}, observed_time_unix_nano=START + 5)
    entry.span_id, entry.trace_id, entry.dropped_attributes_count = b"\1" * 8, b"\2" * 16, 7
    (event,) = events(logs(entry, resource={"host.name": "edge-7", "r": 1}, scope={"s": "t"}))
    assert event == {
        "ts": str(START),
        "sev": 3,
        "thread": {"id": "TL", "name": "logs"},
        "log": {"id": "LL", "attrs": {}},
        "serverHost": "edge-7",
        "attrs": {
            "message": "it broke", "dropped_attributes_count": 7, "sca:observedTime": str(START + 5),
            "span_id": "01" * 8, "trace_id": "02" * 16, "scope.name": "lib", "scope.attributes.s": "t", "a": 1,
            "b.c": "x", "b.d.0": 1, "b.d.1": 2,
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "name", "value"),
    [
        ({"resource": True}, "resource.attributes.r.x", 1),
        ({"resource": True, "resource_prefix": "res_", "separator": "_"}, "res_r_x", 1),
        ({"scope_prefix": "lib:"}, "lib:s", "t"),
        ({"decompose_body": True}, "body.map.k", "v"),
        ({"decompose_body": True, "body_prefix": ""}, "k", "v"),
        ({}, "message", '{"k":"v"}'),
        ({}, "message_", "own"),
        ({"suffix": "!"}, "message!", "own"),
    ],
)
def test_names_follow_the_options(options: dict[str, Any], name: str, value: object) -> None:
    entry = log({"k": "v"}, {"message": "own"})
    (event,) = events(logs(entry, resource={"r": {"x": 1}}, scope={"s": "t"}), **options)
    assert event["attrs"][name] == value


@pytest.mark.parametrize(
    ("attributes", "resource", "options", "host"),
    [
        ({"serverHost": "own"}, {"serverHost": "res", "host.name": "name"}, {}, "own"),
        ({}, {"serverHost": "res", "host.name": "name"}, {}, "res"),
        ({}, {"host.name": "name"}, {"server_host": "option"}, "name"),
        ({}, {}, {"server_host": "option"}, "option"),
        ({}, {}, {}, None),
    ],
)
def test_the_host_is_the_nearest_that_is_named(
    attributes: dict[str, Any], resource: dict[str, Any], options: dict[str, Any], host: str | None
) -> None:
    (event,) = events(logs(log(attributes=attributes), resource=resource), **options)
    assert event.get("serverHost") == host
    assert "serverHost" not in event["attrs"]


def test_a_record_without_a_time_has_the_one_that_it_was_observed_at_or_came_at() -> None:
    observed = log(time_unix_nano=0, observed_time_unix_nano=START)
    none = log(time_unix_nano=0)
    request = logs(observed, none)
    first, second = events(request)
    assert first["ts"] == str(START)
    assert second["ts"] == str(int(request.timestamp.timestamp() * 1_000_000) * 1_000)


def test_a_span_is_an_event_as_the_collector_makes_it() -> None:
    (event,) = events(record(one_span(5, name="GET /", kind=2, attributes={"http.status": 200})))
    assert (event["ts"], event["sev"], event["thread"]["id"], event["log"]["id"]) == (str(START), 3, "TT", "LT")
    attrs = event["attrs"]
    assert (attrs["name"], attrs["kind"], attrs["status_code"]) == ("GET /", "server", "unset")
    assert (attrs["duration_nano"], attrs["span_id"], attrs["http.status"]) == ("5", f"{5:016x}", 200)
    assert "parent_span_id" not in attrs


def test_every_record_of_a_request_is_an_item_of_its_own() -> None:
    outcome = apply(logs(log("a"), log("b")), logs(), Record(b"{}", namespace="web"), Record(b"x", namespace="logs"))
    assert [json.loads(row).get("attrs", {}).get("message") for row in kept(outcome)] == ["a", "b", None]
    assert outcome.kept.column("item").to_pylist() == [1, 2, 0]
    assert (outcome.skipped, outcome.added) == (1, 1)
    assert outcome.failures.column("code").to_pylist() == ["not_otlp"]


def test_a_request_that_becomes_too_much_fails() -> None:
    outcome = apply(logs(log("a" * 100), log("b" * 100)), max_bytes=300)
    assert outcome.failures.column("code").to_pylist() == ["too_large"]


def test_the_destination_takes_such_an_event_as_it_is() -> None:
    (row,) = kept(apply(logs(log("hi", severity_number=21), resource={"host.name": "edge"})))
    event = EventMapper(("scope.name",), "default", most=10_000).map_event(row, 0, (0, 0, 1))
    assert json.loads(event.body) == {
        "thread": "TL", "sev": 6, "ts": str(START), "log": "LL", "attrs": {"message": "hi"}
    }  # fmt: skip
    assert json.loads(event.session_info) == {"serverHost": "edge", "scope.name": "lib"}
    assert (event.thread, event.log) == (b'{"id":"TL","name":"logs"}', b'{"id":"LL","attrs":{}}')


def test_a_time_that_64_bits_with_a_sign_do_not_hold_is_none() -> None:
    late = 2**64 - 1
    entries_ = [log(time_unix_nano=late, observed_time_unix_nano=START), log(time_unix_nano=late)]
    first, second = events(logs(*entries_))
    assert first["ts"] == str(START)
    assert 0 < int(second["ts"]) < 2**63
    (span,) = events(record(one_span(start_time_unix_nano=late)))
    assert 0 < int(span["ts"]) < 2**63
    assert span["attrs"]["start_time_unix_nano"] == str(late)


def test_ids_of_zeros_are_none() -> None:
    (event,) = events(logs(log(span_id=b"\0" * 8, trace_id=b"\0" * 16)))
    assert not {"span_id", "trace_id"} & set(event["attrs"])


def test_a_long_name_is_not_multiplied_by_what_is_in_it() -> None:
    nested = {"x" * 50_000: {f"n{number}": number for number in range(2_000)}}
    tracemalloc.start()
    outcome = apply(logs(log(attributes=nested)), max_bytes=10_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert outcome.failures.column("code").to_pylist() == ["too_large"]
    assert peak < 40_000_000
