"""Logs that follow their traces, without an engine: what is found in requests, and what leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from penstock.holding.decision import Decision
from penstock.record import Record
from penstock.sampling.commands import Place, flush_command
from penstock.steps.contract import Leaving
from penstock.steps.sample.step import Sample
from tests.steps.sample.test_sample import (
    FIRST_OFFSET,
    PROTOBUF,
    SECRET,
    attributes,
    error,
    items_of,
    leaving,
    records,
    request,
    sampler,
    step,
)
from tests.support.otlp_requests import START, UNKNOWN, key_values, span


def log(number: int | bytes | None, text: str = "hello", **fields: Any) -> LogRecord:
    """A log record of the trace of ``span(number)``, or with these bytes as its trace id."""
    made = LogRecord(time_unix_nano=START, attributes=key_values(fields))
    made.body.string_value = text
    made.trace_id = number.to_bytes(16, "big") if isinstance(number, int) else number or b""
    return made


def logs(*entries: LogRecord, **resource: Any) -> Record:
    message = ExportLogsServiceRequest()
    group = message.resource_logs.add(schema_url="https://example.test/resource")
    group.resource.attributes.extend(key_values(resource))
    scope = group.scope_logs.add()
    scope.scope.name = "lib"
    scope.log_records.extend(entries)
    return Record(bytes(message.SerializeToString()), "logs", headers=PROTOBUF)


def following(**options: Any) -> Sample:
    return step(follow=["logs"], **options)


def one_log(row: dict[str, Any]) -> tuple[Any, Any]:
    (group,) = ExportLogsServiceRequest.FromString(row["data"]).resource_logs
    (scope,) = group.scope_logs
    (only,) = scope.log_records
    assert (group.schema_url, scope.scope.name) == ("https://example.test/resource", "lib")
    return group.resource, only


def test_each_log_is_an_item_and_one_without_a_trace_id_goes_on() -> None:
    sample = following()
    batch = records(
        logs(log(1), log(None)),
        request(error(1), span(2)),
        Record(b"m", "metrics"),
        logs(log(bytes(16)), log(b"17 bytes are many"), log(b"8 bytes.")),
        logs(),
        Record(b"\xff", "logs", headers=PROTOBUF),
    )
    scan = sample.scan(batch, SECRET)
    assert scan.parts is not None
    assert scan.parts.rows.tolist() == [0, 0, 1, 1, 2, 3, 3, 3]
    assert scan.parts.numbers.tolist() == [1, 2, 1, 2, 0, 1, 2, 3]
    assert scan.keyed.tolist() == [True, False, True, True, False, False, False, False]
    assert scan.parts.skipped == 1
    assert [(row["offset"], row["code"]) for row in scan.parts.failures.to_pylist()] == [(FIRST_OFFSET + 5, "not_otlp")]
    assert (scan.high[0], scan.low[0]) == (scan.high[2], scan.low[2])


def _decided(sample: Sample, batch: pa.RecordBatch) -> Decision:
    return sampler(sample).decide(items_of(sample, batch))


def test_a_log_leaves_with_its_trace_cut_out_with_resource_and_scope() -> None:
    sample = following()
    kept = log(1, k="v")
    kept.MergeFromString(UNKNOWN)
    batch = records(logs(log(2), kept, **{"service.name": "shop"}), request(error(1)))
    decision = _decided(sample, batch)
    assert (decision.passed, decision.held) == (2, 1)
    row, _ = leaving(sample, batch, decision)
    assert (row["namespace"], row["item"], dict(row["headers"])) == ("logs", 2, PROTOBUF)
    resource, found = one_log(row)
    assert attributes(resource) == {"service.name": "shop"}
    assert attributes(found) == {"k": "v", "sampling.policy": "errors", "sampling.adjusted_count": 1.0}
    del found.attributes[-2:]
    assert found == kept


def test_a_request_of_logs_in_json_follows_like_one_in_protobuf() -> None:
    sample = following()
    body = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"traceId": f"{1:032x}", "body": {"stringValue": "x"}}]}]}]}
    json = Record(orjson.dumps(body), "logs", headers={"content_type": "application/json"})
    batch = records(json, request(error(1)))
    row, _ = leaving(sample, batch, _decided(sample, batch))
    message = ExportLogsServiceRequest.FromString(row["data"])
    assert message.resource_logs[0].scope_logs[0].log_records[0].body.string_value == "x"


def test_tables_get_json() -> None:
    sample = following()
    entry = log(1, n=2**53 + 1)
    entry.severity_number, entry.severity_text, entry.span_id = 17, "ERROR", b"12345678"
    batch = records(logs(entry, **{"service.name": "shop"}), request(error(1)))
    row, _ = leaving(sample, batch, _decided(sample, batch), as_otlp=False)
    found = orjson.loads(row["data"])
    assert (found["trace_id"], found["span_id"]) == (f"{1:032x}", b"12345678".hex())
    assert (found["body"], found["severity_text"], found["service_name"]) == ("hello", "ERROR", "shop")
    assert found["time"] == "2025-11-13T02:13:20.123456Z"
    assert orjson.loads(found["attributes"])["n"] == 2**53 + 1
    assert sample.casts["/time"] == "timestamptz"
    assert "/time" not in step().casts


@pytest.mark.parametrize("body", [{"k": [1, None]}, 5, None])
def test_a_body_that_is_no_text_is_json_in_a_string(body: Any) -> None:
    sample = following()
    entry = log(1)
    entry.body.CopyFrom(key_values({"body": body})[0].value)
    batch = records(logs(entry), request(error(1)))
    row, _ = leaving(sample, batch, _decided(sample, batch), as_otlp=False)
    text = orjson.loads(row["data"])["body"]
    assert (text if text is None else orjson.loads(text)) == body


def test_a_flush_lets_logs_go_and_counts_on_their_resources_too() -> None:
    sample = following()
    batch = records(logs(log(1), **{"penstock.flushes": 1}))
    state = sampler(sample)
    state.decide(items_of(sample, batch))
    decision = state.decide(np.empty(0, sample.item_type), [], [], flush_command(Place(7, 3, 50, 60)))
    (row,) = leaving(sample, batch, decision)
    resource, found = one_log(row)
    assert attributes(resource) == {"penstock.flushes": 2}
    assert attributes(found) == {}


def test_what_another_sampler_wrote_on_a_log_is_replaced() -> None:
    sample = following()
    batch = records(logs(log(1, **{"sampling.policy": "old", "k": 1})), request(error(1)))
    row, _ = leaving(sample, batch, _decided(sample, batch))
    written = [each.key for each in one_log(row)[1].attributes]
    assert written == ["k", "sampling.policy", "sampling.adjusted_count"]


def test_a_failed_log_is_kept_as_a_request_of_one_log() -> None:
    sample = following()
    came = logs(log(1, "one"), log(2, "two"))
    kept = sample.cut_out(came, 2, Leaving(SECRET), {})
    assert one_log({"data": kept.data})[1].body.string_value == "two"
    assert (kept.headers["only_item"], kept.namespace) == ("2", "logs")
    assert items_of(sample, records(kept))["item"].tolist() == [2]


def test_nothing_else_can_follow() -> None:
    with pytest.raises(ValueError, match="logs"):
        step(follow=["metrics"])
