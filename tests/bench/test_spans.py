"""The made-up spans of the benchmark of sampling are what it says of them."""

from __future__ import annotations

from collections import Counter

import numpy as np
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from bench.spans import SERVICES, SPANS_PER_REQUEST, Shares, as_batch, requests, spread_traces


def spans_of(made: np.ndarray) -> list[Span]:
    """All spans, each request read as a message."""
    groups = [ExportTraceServiceRequest.FromString(row.tobytes()).resource_spans[0] for row in made]
    assert {group.resource.attributes[0].value.string_value.encode() for group in groups} <= set(SERVICES)
    assert all(len(group.scope_spans[0].spans) == SPANS_PER_REQUEST for group in groups)
    return [span for group in groups for span in group.scope_spans[0].spans]


def test_spans_of_a_trace_share_its_id_and_nothing_else() -> None:
    rng = np.random.default_rng(1)
    traces = spread_traces(0, 2_000, 50, rng)
    found = spans_of(requests(traces, rng))
    by_trace: dict[int, set[bytes]] = {}
    for trace, span in zip(traces.tolist(), found, strict=True):
        by_trace.setdefault(trace, set()).add(span.trace_id)
    assert all(len(ids) == 1 for ids in by_trace.values())
    assert len(set.union(*by_trace.values())) == len(by_trace)
    assert len({span.span_id for span in found}) == len({span.SerializeToString() for span in found}) == len(found)
    assert 8 <= len(found) / len(by_trace) <= 12


def test_spans_have_twelve_attributes_and_about_five_hundred_bytes() -> None:
    rng = np.random.default_rng(2)
    found = spans_of(requests(np.arange(SPANS_PER_REQUEST), rng))
    assert {len(span.attributes) for span in found} == {12}
    assert all(450 <= len(span.SerializeToString()) <= 550 for span in found)


def test_as_many_spans_are_rare_as_asked_for() -> None:
    rng = np.random.default_rng(3)
    found = spans_of(requests(np.arange(5_000), rng, Shares(failed=0.1, unavailable=0.1, very_slow=0.1, slow=0.1)))
    status = Counter(span.status.code for span in found)
    answers = [next(a.value for a in span.attributes if a.key == "http.response.status_code") for span in found]
    codes = Counter(answer.int_value for answer in answers)
    seconds = Counter((span.end_time_unix_nano - span.start_time_unix_nano) // 10**9 for span in found)
    for count in (status[Status.STATUS_CODE_ERROR], codes[503], seconds[2], seconds[6]):
        assert 350 <= count <= 650
    assert set(codes) == {200, 503}


def test_small_spans_have_ids_and_times_alone() -> None:
    rng = np.random.default_rng(4)
    found = spans_of(requests(np.arange(SPANS_PER_REQUEST), rng, small=True))
    assert {(span.name, len(span.attributes), len(span.trace_id)) for span in found} == {("", 0, 16)}


def test_requests_go_into_the_log_as_the_source_stores_them() -> None:
    made = requests(np.arange(3 * SPANS_PER_REQUEST), np.random.default_rng(5))
    batch = as_batch(made)
    assert batch.column("data").to_pylist() == [row.tobytes() for row in made]
    assert set(batch.column("namespace").to_pylist()) == {"traces"}
    assert dict(batch.column("headers")[0].as_py())["content_type"] == "application/x-protobuf"
