"""The step ``sample`` without an engine: what it finds in requests, and what it makes of the spans that leave."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from penstock.holding.decision import Decision
from penstock.holding.item import Items
from penstock.record import Record, entries, placed
from penstock.sampling.commands import Place, flush_command
from penstock.sampling.sampler import Sampler
from penstock.sampling.span_item import NOT_SAMPLED
from penstock.steps.contract import Leaving, Shard
from penstock.steps.sample.config import SampleConfig
from penstock.steps.sample.step import Sample
from tests.support.otlp_requests import key_values, span

SECRET = bytes(range(16))
ERRORS = {"name": "errors", "type": "status_code", "status_code": {"status_codes": ["ERROR"]}}
PROTOBUF = {"content_type": "application/x-protobuf"}
FIRST_OFFSET = 100


def step(*policies: dict[str, Any], **options: Any) -> Sample:
    return Sample(SampleConfig.model_validate({"policies": list(policies or (ERRORS,)), **options}))


def request(*spans: Any, **resource: Any) -> bytes:
    message = ExportTraceServiceRequest()
    group = message.resource_spans.add()
    group.resource.attributes.extend(key_values(resource))
    group.scope_spans.add().spans.extend(spans)
    return bytes(message.SerializeToString())


def error(number: int, **fields: Any) -> Any:
    made = span(number, **fields)
    made.status.code = made.status.STATUS_CODE_ERROR
    return made


def records(*bodies: bytes | Record) -> pa.RecordBatch:
    rows = (body if isinstance(body, Record) else Record(body, "traces", headers=PROTOBUF) for body in bodies)
    return placed(entries(rows), 0, FIRST_OFFSET)


def items_of(sample: Sample, batch: pa.RecordBatch) -> Items:
    """As the engine makes them of a scan; those without a key are left out."""
    scan = sample.scan(batch, SECRET)
    assert scan.parts is not None
    items = np.zeros(len(scan.high), sample.item_type)
    items["high"], items["low"], items["bits"] = scan.high, scan.low, scan.bits
    for name, column in scan.more.items():
        items[name] = column
    items["offset"] = items["order"] = FIRST_OFFSET + scan.parts.rows
    items["item"], items["time"] = scan.parts.numbers, 1
    found: Items = items[scan.keyed]
    return found


def sampler(sample: Sample) -> Sampler:
    return sample.new_state(Shard(0, 1, SECRET))


def leaving(sample: Sample, batch: pa.RecordBatch, decision: Decision, as_otlp: bool = True) -> list[dict[str, Any]]:
    items = np.sort(decision.released, order=["partition", "offset", "item"])
    rows: list[dict[str, Any]] = sample.release(batch, items, Leaving(SECRET, as_otlp)).to_pylist()
    return rows


def one_span(row: dict[str, Any]) -> tuple[Any, Any]:
    """The resource, and the span, of a row."""
    (group,) = ExportTraceServiceRequest.FromString(row["data"]).resource_spans
    ((only,),) = (scope.spans for scope in group.scope_spans)
    return group.resource, only


def attributes(thing: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in thing.attributes}


def test_requests_of_other_signals_go_on_as_they_are() -> None:
    sample = step()
    batch = records(request(error(1)), Record(b"{}", "logs"), request(error(2), error(3)), Record(b"m", "metrics"))
    scan = sample.scan(batch, SECRET)
    assert scan.parts is not None
    assert scan.parts.rows.tolist() == [0, 1, 2, 2, 3]
    assert scan.parts.numbers.tolist() == [1, 0, 1, 2, 0]
    assert scan.keyed.tolist() == [True, False, True, True, False]
    whole = np.zeros(2, sample.released_type)
    whole["offset"] = [FIRST_OFFSET + 1, FIRST_OFFSET + 3]
    assert sample.release(batch, whole, Leaving(SECRET, True)).column("data").to_pylist() == [b"{}", b"m"]


def test_what_is_no_request_fails_and_a_request_without_spans_is_skipped() -> None:
    bad = span(3)
    bad.span_id = bytes(8)
    json = Record(b'{"resourceSpans":', "traces", headers={"content_type": "application/json"})
    scan = step().scan(records(b"\xff", request(), request(span(1), bad), json, Record(b"x", "traces")), SECRET)
    assert scan.parts is not None
    failed = [(row["offset"], row["item"], row["code"]) for row in scan.parts.failures.to_pylist()]
    assert failed == [
        (FIRST_OFFSET, 0, "not_otlp"), (FIRST_OFFSET + 3, 0, "not_otlp"), (FIRST_OFFSET + 4, 0, "not_otlp"),
        (FIRST_OFFSET + 2, 2, "bad_ids"),
    ]  # fmt: skip
    assert (scan.parts.skipped, scan.parts.numbers.tolist()) == (1, [1])


def test_a_request_in_json_is_decided_and_leaves_like_one_in_protobuf() -> None:
    body = {
        "resourceSpans": [{
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]},
            "scopeSpans": [{"spans": [{
                "traceId": "0102030405060708090a0b0c0d0e0f10", "spanId": "0102030405060708", "name": "x",
                "status": {"code": 2}, "attributes": [{"key": "n", "value": {"intValue": "9007199254740993"}}],
            }]}],
        }],
    }  # fmt: skip
    sample = step()
    batch = records(Record(orjson.dumps(body), "traces", headers={"content_type": "application/json; charset=utf-8"}))
    (row,) = leaving(sample, batch, sampler(sample).decide(items_of(sample, batch)))
    assert dict(row["headers"]) == PROTOBUF
    resource, made = one_span(row)
    assert (made.trace_id.hex(), made.name) == ("0102030405060708090a0b0c0d0e0f10", "x")
    assert attributes(made)["n"] == 2**53 + 1
    assert attributes(resource) == {"service.name": "shop"}


def test_a_resource_in_two_pieces_is_one() -> None:
    """Protobuf allows it, and whoever reads messages puts it together."""
    two = request(error(1), first="a") + b""
    message = ExportTraceServiceRequest.FromString(two)
    group = message.resource_spans[0].SerializeToString()
    more = ExportTraceServiceRequest.FromString(request(**{"service.name": "b"})).resource_spans[0].resource
    piece = more.SerializeToString()
    group += bytes([0x0A, len(piece)]) + piece
    body = bytes([0x0A, len(group)]) + group
    asked = {"name": "b", "type": "string_attribute", "string_attribute": {"key": "service.name", "values": ["b"]}}
    sample = step(asked)
    batch = records(body)
    (row,) = leaving(sample, batch, sampler(sample).decide(items_of(sample, batch)))
    assert attributes(one_span(row)[0]) == {"first": "a", "service.name": "b"}


def test_the_policy_and_the_adjusted_count_are_on_every_span_that_leaves() -> None:
    quarter = {"name": "quarter", "type": "probabilistic", "probabilistic": {"sampling_percentage": 25}}
    sample = step(ERRORS, quarter)
    batch = records(
        request(*(span(n, trace_id=bytes([n]) * 16) for n in range(1, 200))), request(error(500, attributes={"k": "v"}))
    )
    found = [
        attributes(one_span(row)[1]) for row in leaving(sample, batch, sampler(sample).decide(items_of(sample, batch)))
    ]
    assert found[-1] == {"k": "v", "sampling.policy": "errors", "sampling.adjusted_count": 1.0}
    assert len(found) > 10
    assert all(each == {"sampling.policy": "quarter", "sampling.adjusted_count": 4.0} for each in found[:-1])


def test_what_another_sampler_wrote_is_replaced() -> None:
    sample = step()
    batch = records(request(error(1, attributes={"sampling.policy": "old", "k": 1, "sampling.adjusted_count": 9.0})))
    (row,) = leaving(sample, batch, sampler(sample).decide(items_of(sample, batch)))
    written = [(each.key, each.value.string_value) for each in one_span(row)[1].attributes]
    assert written == [("k", ""), ("sampling.policy", "errors"), ("sampling.adjusted_count", "")]


def test_a_dry_run_lets_everything_go_and_says_what_would_have_been() -> None:
    drop = {
        "name": "drop", "type": "downgrader",
        "downgrader": {"downgrade_to": "NotSampled", "sub_policy": {"name": "all", "type": "always_sample"}},
    }  # fmt: skip
    sample = step(ERRORS, drop, dry_run=True)
    batch = records(request(error(1), span(2)))
    decision = sampler(sample).decide(items_of(sample, batch))
    assert (decision.passed, decision.skipped) == (2, 0)
    said = [attributes(one_span(row)[1]) for row in leaving(sample, batch, decision)]
    assert said == [
        {"penstock.sampled": True, "penstock.policy": "errors"},
        {"penstock.sampled": False, "penstock.policy": "drop"},
    ]


def test_a_placeholder_stands_for_a_trace_that_is_not_sampled() -> None:
    drop = {
        "name": "drop", "type": "downgrader", "emit_single_span_for_not_sampled": True,
        "downgrader": {"downgrade_to": "NotSampled", "sub_policy": {"name": "all", "type": "always_sample"}},
    }  # fmt: skip
    sample = step(drop)
    first, second = span(1), span(1)
    second.span_id = b"another0"
    batch = records(request(first, second, **{"service.name": "shop"}))
    decision = sampler(sample).decide(items_of(sample, batch))
    assert (decision.passed, decision.skipped) == (1, 1)
    (row,) = leaving(sample, batch, decision)
    resource, made = one_span(row)
    assert (made.name, made.trace_id) == ("TRACE NOT SAMPLED", first.trace_id)
    assert attributes(resource) == {"service.name": "not-sampled-dummy-service"}
    assert attributes(made) == {"sampling.policy": "drop"}


@pytest.mark.parametrize("before", [None, "penstock.flushes", "atlassiansampling.flushes"])
def test_a_flush_counts_on_and_hands_over_decisions(before: str | None) -> None:
    sample = step()
    resource = {} if before is None else {before: 2}
    batch = records(request(span(1), **resource), request(error(2)))
    state = sampler(sample)
    state.decide(items_of(sample, batch))
    decision = state.decide(np.empty(0, sample.item_type), [], [], flush_command(Place(7, 3, 50, 60)))
    waited, made = decision.released[:1], decision.released[1:]
    (row,) = sample.release(batch, waited, Leaving(SECRET, True)).to_pylist()
    assert attributes(one_span(row)[0]) == {"penstock.flushes": 1 if before is None else 3}
    assert attributes(one_span(row)[1]) == {}
    (row,) = sample.make(made, Leaving(SECRET, True)).to_pylist()
    assert (row["partition"], row["offset"], row["item"] > 0) == (7, 3, True)
    resource_of, decided = one_span(row)
    assert attributes(resource_of) == {"penstock.decision": True}
    assert (decided.name, decided.trace_id) == ("decision", span(2).trace_id)
    assert attributes(decided) == {"sampling.policy": "errors", "sampling.adjusted_count": 1.0}
    assert not made["bits"][0] & NOT_SAMPLED


NOISE = {"name": "noise", "type": "downgrader", "downgrade_to": "NotSampled"}
NOISY = {"name": "noisy", "type": "string_attribute", "key": "noise", "values": ["yes"]}
MOST = {"name": "most", "type": "probabilistic", "sampling_percentage": 90}


def test_another_sampler_takes_over_policies_and_adjusted_counts() -> None:
    one = step(ERRORS, {**NOISE, "sub_policy": NOISY}, MOST)
    came = records(request(*(span(n) for n in range(1, 20)), span(20, attributes={"noise": "yes"}), error(21)))
    state = sampler(one)
    state.decide(items_of(one, came))
    flushed = state.decide(np.empty(0, one.item_type), [], [], flush_command(Place(7, 3, 50, 60)))
    made = flushed.released[-flushed.made :]
    decisions = [row["data"] for row in one.make(made, Leaving(SECRET, True)).to_pylist()]
    other = step(MOST | {"sampling_percentage": 0}, ERRORS)
    taken, late = sampler(other), records(request(*(span(n, attributes={"late": 1}) for n in range(1, 22))))
    taken.decide(items_of(other, records(*decisions)))
    found = leaving(other, late, taken.decide(items_of(other, late)))
    by_policy: dict[Any, set[float]] = {}
    for row in found:
        said = attributes(one_span(row)[1])
        by_policy.setdefault(said.get("sampling.policy"), set()).add(said["sampling.adjusted_count"])
    assert by_policy == {"most": {100 / 90}, "errors": {1.0}}


@pytest.mark.parametrize(
    ("told", "policy", "count"),
    [
        ({"sampling.policy": "errors", "sampling.adjusted_count": 4.5}, "errors", 4.5),
        ({"sampling.policy": "errors", "sampling.adjusted_count": 4}, "errors", 4.0),
        ({"sampling.policy": "gone", "sampling.adjusted_count": 4.5}, None, 4.5),
        ({"sampling.policy": 7}, None, 1.0),
        ({"sampling.adjusted_count": 0.5}, None, 1.0),
        ({"sampling.adjusted_count": -3}, None, 1.0),
        ({"sampling.adjusted_count": float("nan")}, None, 1.0),
        ({"sampling.adjusted_count": float("inf")}, None, 1.0),
        ({"sampling.adjusted_count": "2"}, None, 1.0),
        ({}, None, 1.0),
    ],
)
def test_a_decision_span_is_believed_as_far_as_it_makes_sense(
    told: dict[str, Any], policy: str | None, count: float
) -> None:
    sample = step()
    state = sampler(sample)
    state.decide(items_of(sample, records(request(span(1, attributes=told), **{"penstock.decision": True}))))
    late = records(request(span(1)))
    (row,) = leaving(sample, late, state.decide(items_of(sample, late)))
    said = attributes(one_span(row)[1])
    assert (said.get("sampling.policy"), said["sampling.adjusted_count"]) == (policy, count)


def test_an_item_that_its_request_no_longer_has_is_not_made_up() -> None:
    sample = step()
    batch = records(request(error(1)), request(error(2)))
    wanted = np.zeros(3, sample.released_type)
    wanted["offset"], wanted["item"] = [FIRST_OFFSET, FIRST_OFFSET + 1, FIRST_OFFSET + 9], [2, 1, 1]
    rows = sample.release(batch, wanted, Leaving(SECRET, True)).to_pylist()
    assert [(row["offset"], row["item"]) for row in rows] == [(FIRST_OFFSET + 1, 1)]


def test_tables_get_json() -> None:
    sample = step()
    batch = records(request(error(1), **{"service.name": "shop"}))
    (row,) = leaving(sample, batch, sampler(sample).decide(items_of(sample, batch)), as_otlp=False)
    assert row["headers"] == []
    found = orjson.loads(row["data"])
    assert (found["service_name"], found["status_code"]) == ("shop", "ERROR")
    assert orjson.loads(found["attributes"])["sampling.policy"] == "errors"


def test_policies_and_tables_agree_on_a_key_that_is_there_twice() -> None:
    sample = step({"name": "vips", "type": "string_attribute", "key": "customer", "values": ["vip"]})
    twice = [span(n, attributes={"customer": first}) for n, first in ((1, "vip"), (2, "other"))]
    for each, second in zip(twice, ("other", "vip"), strict=True):
        each.attributes.extend(key_values({"customer": second}))
    resource = request(span(3))
    of_resource = ExportTraceServiceRequest.FromString(resource)
    for value in ("vip", "other"):
        of_resource.resource_spans[0].resource.attributes.extend(key_values({"customer": value}))
    batch = records(request(*twice), of_resource.SerializeToString())
    rows = leaving(sample, batch, sampler(sample).decide(items_of(sample, batch)), as_otlp=False)
    found = {row["trace_id"]: row for row in (orjson.loads(row["data"]) for row in rows)}
    assert set(found) == {span(1).trace_id.hex(), span(3).trace_id.hex()}
    assert orjson.loads(found[span(1).trace_id.hex()]["attributes"])["customer"] == "vip"
    assert orjson.loads(found[span(3).trace_id.hex()]["resource_attributes"])["customer"] == "vip"


def test_a_failed_span_is_kept_as_a_request_of_one_span_and_keeps_its_number() -> None:
    sample = step()
    body = request(error(1), error(2, attributes={"k": "v"}), error(3), **{"service.name": "shop"})
    kept = sample.cut_out(Record(body, "traces", headers=PROTOBUF, partition=4, offset=9), 2, Leaving(SECRET), {})
    message = ExportTraceServiceRequest.FromString(kept.data)
    assert [each.span_id for each in message.resource_spans[0].scope_spans[0].spans] == [span(2).span_id]
    assert attributes(message.resource_spans[0].scope_spans[0].spans[0]) == {"k": "v"}
    assert (kept.partition, kept.offset, kept.headers["only_item"]) == (4, 9, "2")
    assert sample.cut_out(kept, 2, Leaving(SECRET), {}) == kept
    again = records(kept)
    assert items_of(sample, again)["item"].tolist() == [2]
    (row,) = leaving(sample, again, sampler(sample).decide(items_of(sample, again)))
    assert (row["item"], one_span(row)[1].span_id) == (2, span(2).span_id)


def test_a_failed_request_that_cannot_be_read_is_kept_as_it_is() -> None:
    broken = Record(b"\xff", "traces", headers=PROTOBUF, partition=0, offset=0)
    assert step().cut_out(broken, 1, Leaving(SECRET), {}) == broken


def test_a_failed_span_is_kept_as_it_left_and_not_as_it_came() -> None:
    """With what was written on it; a placeholder, and a decision, as what they are."""
    drop = {
        "name": "drop", "type": "downgrader", "emit_single_span_for_not_sampled": True,
        "downgrader": {"downgrade_to": "NotSampled", "sub_policy": {"name": "all", "type": "always_sample"}},
    }  # fmt: skip
    sample = step(ERRORS, drop)
    body = Record(
        request(error(1), span(2, name="secret")), "traces", headers=PROTOBUF, partition=0, offset=FIRST_OFFSET
    )
    batch = records(body)
    state = sampler(sample)
    first = state.decide(items_of(sample, batch))
    last = state.decide(np.empty(0, sample.item_type), [], [], flush_command(Place(7, 3, 50, 60)))
    notes = {
        (int(each["partition"]), int(each["offset"]), int(each["item"])): each.tobytes()
        for each in np.concatenate([first.released, last.released])
    }
    told = Record(b"{}", "flush", partition=7, offset=3)
    kept = [sample.cut_out(told if place[0] else body, place[2], Leaving(SECRET), notes) for place in notes]
    found = [one_span({"data": each.data})[1] for each in kept]
    assert [each.name for each in found] == ["span 1", "TRACE NOT SAMPLED", "decision", "decision"]
    assert attributes(found[0])["sampling.policy"] == "errors"
    assert {each.namespace for each in kept} == {"traces"}
    again = sample.scan(records(*kept), SECRET)
    assert again.parts is not None
    assert again.parts.numbers.tolist() == [place[2] for place in notes]


def test_a_count_that_came_alone_is_replaced_too() -> None:
    sample = step()
    batch = records(request(error(1, attributes={"sampling.adjusted_count": 100.0})))
    (row,) = leaving(sample, batch, sampler(sample).decide(items_of(sample, batch)))
    written = [(each.key, each.value.double_value) for each in one_span(row)[1].attributes]
    assert written == [("sampling.policy", 0.0), ("sampling.adjusted_count", 1.0)]


def test_without_a_secondary_cache_what_waited_there_waits_with_the_others() -> None:
    lone = {"name": "lone", "type": "root_spans", "root_spans": {"sub_policy": {**ERRORS, "name": "inner"}}}
    before = step(lone, primary_cache_size=8, secondary_cache_size=4)
    state = sampler(before)
    batch = records(request(*(span(number) for number in (1, 2, 3))))
    assert state.decide(items_of(before, batch)).levels["secondary_size"] == 3
    after = step(lone, ERRORS, primary_cache_size=8)
    again = sampler(after)
    for blob in state.snapshot():
        again.apply(blob)
    moved = again.decide(np.empty(0, after.item_type))
    assert (moved.waiting, moved.dropped) == (3, 0)
    assert (moved.levels["primary_size"], moved.levels["secondary_size"]) == (3, 0)
    restored = sampler(after)
    for blob in [*state.snapshot(), *moved.change.append]:
        restored.apply(blob)
    assert restored.snapshot() == again.snapshot()


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"type": "latency", "threshold_ms": 7, "latency": {"threshold_ms": 5}}, "stands beside `type`"),
        ({"type": "span_count", "min_spans": 5, "max_spans": 3}, "no trace has 5 spans or more and 3 or fewer"),
        ({"type": "latency", "threshold_ms": 500, "upper_threshold_ms": 300}, "no trace lasts longer than 500 ms"),
    ],
)
def test_a_policy_that_contradicts_itself_is_refused(policy: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        step({"name": "odd", **policy})
