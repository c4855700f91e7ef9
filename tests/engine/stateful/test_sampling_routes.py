"""Tail sampling for real: Spark, DuckDB, kills while thousands of traces wait, a lost checkpoint, and a hand-over."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from penstock.engine.layout import Layout
from penstock.engine.ledger import Ledger, sqlite_url
from penstock.log.local_log import LocalLog
from penstock.record import Record, entries
from tests.cli.processes import Terminal
from tests.engine.stateful.run_to_end import run_to_end
from tests.otlp.messages import listed
from tests.support.command import run_penstock
from tests.support.duckdb_file import open_file
from tests.support.otlp_receiver import OtlpReceiver, otlp_receiver
from tests.support.otlp_requests import UNKNOWN, key_values

PIPELINE = """\
name: traces
engine: {{restart_backoff: 100ms, restart_backoff_max: 200ms}}
sources: {{spans: {{type: otlp, listen: "127.0.0.1:4318"}}}}
routes:
  sampled:
    from: spans
    max_records: 40
    steps:
      - sample:
          policies:
            - {{name: errors, type: status_code, status_code: {{status_codes: [ERROR]}}}}
            - {{name: never, type: probabilistic, probabilistic: {{sampling_percentage: 0}}}}
    to: {to}
"""
TO_TABLE = "{type: duckdb, path: ./spans.duckdb, table: spans, mode: stream}"
POINTS = [
    "route.range_fixed",
    "destination.writing",
    "route.destination_done",
    "route.before_ledger_commit",
    "route.ledger_committed",
]


def trace_id(trace: int) -> bytes:
    return (trace + 1).to_bytes(16, "big")


def request(spans: Iterable[tuple[int, int]], error: bool = False) -> bytes:
    """A request with these spans, each a trace and its number in it."""
    message = ExportTraceServiceRequest()
    group = message.resource_spans.add()
    group.resource.attributes.add(key="service.name").value.string_value = "shop"
    inner = group.scope_spans.add()
    for trace, number in spans:
        span = inner.spans.add(trace_id=trace_id(trace), span_id=(trace * 8 + number + 1).to_bytes(8, "big"), name="s")
        span.start_time_unix_nano, span.end_time_unix_nano = 10**18, 10**18 + 10**6
        if error:
            span.status.code = span.status.STATUS_CODE_ERROR
    return bytes(message.SerializeToString())


def made_up(number: int) -> ExportTraceServiceRequest:
    """A request with something in every field, and one that nobody knows."""
    message = ExportTraceServiceRequest()
    group = message.resource_spans.add(schema_url="https://example.test/resource")
    group.resource.attributes.extend(key_values({"service.name": f"s{number % 3}", "n": number}))
    scope = group.scope_spans.add(schema_url="https://example.test/scope")
    scope.scope.name, scope.scope.version = f"scope {number % 2}", "1.0"
    for place in range(3):
        span = scope.spans.add(
            trace_id=trace_id(number), span_id=(number * 8 + place + 1).to_bytes(8, "big"), name=f"span {place}",
            parent_span_id=b"" if place == 0 else b"parent00", trace_state="a=1,b=2", kind=place + 1, flags=257,
            start_time_unix_nano=10**18 + 1, end_time_unix_nano=10**18 + 999_999_999, dropped_events_count=place,
            attributes=key_values({"text": "é\n", "int": -(2**63), "float": 0.1, "yes": True, "bytes": b"\xff",
                                   "list": [1, "two", None], "map": {"k": {"l": 2**53 + 1}}}),
        )  # fmt: skip
        span.events.add(time_unix_nano=10**18 + 5, name="event", attributes=key_values({"e": [1.5]}))
        span.links.add(trace_id=trace_id(number + 1), span_id=b"linked00", trace_state="x=y", flags=1)
        span.status.code, span.status.message = span.status.STATUS_CODE_ERROR, "broken"
        span.MergeFromString(UNKNOWN)
    return message


def append(folder: Path, *bodies: bytes) -> None:
    headers = {"content_type": "application/x-protobuf"}
    with LocalLog(Layout(folder / "data").log).writer("spans") as writer:
        writer.append(entries(Record(body, "traces", headers=headers) for body in bodies))


def in_table(folder: Path) -> Counter[tuple[str, str]]:
    with open_file(folder / "spans.duckdb", read_only=True) as warehouse:
        return Counter(warehouse.execute("SELECT trace_id, span_id FROM spans").fetchall())


def totals(folder: Path) -> tuple[int, ...]:
    """Requests, added, loaded, skipped, failed and waiting spans."""
    found = Ledger.open(sqlite_url(Layout(folder / "data").ledger), "traces").totals("sampled")
    assert found.items + found.added == found.loaded + found.skipped + found.failed + found.waiting
    return found.items, found.added, found.loaded, found.skipped, found.failed, found.waiting


def run_into(folder: Path, *points: str) -> None:
    """Run it in a process of its own, until it gets to one of these points and is killed: each of them kills once."""
    fired = folder / "fired"
    fired.mkdir(exist_ok=True)
    faults = {"PENSTOCK_FAULTS": ",".join(f"{point}=kill" for point in points), "PENSTOCK_FAULTS_ONCE": str(fired)}
    run_penstock(["run", "--once"], folder, environment=faults)


def expected(traces: int, numbers: int) -> Counter[tuple[str, str]]:
    return Counter(
        (trace_id(trace).hex(), (trace * 8 + number + 1).to_bytes(8, "big").hex())
        for trace in range(traces)
        for number in range(numbers)
    )


def test_what_waits_outlives_kills_and_every_span_leaves_once(tmp_path: Path) -> None:
    traces = 10_000
    (tmp_path / "pipeline.yaml").write_text(PIPELINE.format(to=TO_TABLE))
    for number in range(2):
        append(tmp_path, *(request((t, number) for t in range(at, at + 100)) for at in range(0, traces, 100)))
    run_to_end(tmp_path)
    assert totals(tmp_path) == (200, 2 * traces - 200, 0, 0, 0, 2 * traces)
    append(tmp_path, *(request(((t, 2) for t in range(at, at + 100)), error=True) for at in range(0, traces, 100)))
    for _ in POINTS:
        run_into(tmp_path, *POINTS)
        totals(tmp_path)
    run_to_end(tmp_path)
    assert sorted(each.name for each in (tmp_path / "fired").iterdir()) == sorted(POINTS)
    assert totals(tmp_path) == (300, 3 * traces - 300, 3 * traces, 0, 0, 0)
    assert in_table(tmp_path) == expected(traces, 3)


def test_without_its_checkpoint_a_sampler_loses_nothing_that_waits(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE.format(to=TO_TABLE))
    append(tmp_path, request((t, 0) for t in range(50)))
    run_to_end(tmp_path)
    assert totals(tmp_path)[-1] == 50
    layout = Layout(tmp_path / "data")
    ledger = Ledger.open(sqlite_url(layout.ledger), "traces")
    shutil.rmtree(layout.checkpoint("sampled", ledger.scope, ledger.generation("sampled")))
    append(tmp_path, request(((t, 1) for t in range(50)), error=True))
    said = run_to_end(tmp_path)
    assert "the state of its step is gone, and 50 records waited in it" in said, said
    assert in_table(tmp_path) == expected(50, 2)
    assert totals(tmp_path)[2:] == (100, 50, 0, 0)


def test_bad_requests_and_spans_fail_alone(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE.format(to=TO_TABLE))
    mixed = ExportTraceServiceRequest.FromString(request([(0, 0), (1, 0), (2, 0)], error=True))
    mixed.resource_spans[0].scope_spans[0].spans[1].trace_id = b"short"
    append(tmp_path, b"\xff\xff", bytes(mixed.SerializeToString()), request([]), b"")
    run_to_end(tmp_path)
    assert in_table(tmp_path) == Counter(list(expected(3, 1))[::2])
    assert totals(tmp_path) == (4, 2, 2, 2, 2, 0)
    failed = Terminal(tmp_path).penstock("failed", "list", "--json").stdout
    assert '"not_otlp"' in failed
    assert '"bad_ids"' in failed


def test_another_pipeline_goes_on_with_what_was_flushed(tmp_path: Path) -> None:
    """What waits and what was decided leave by OTLP; a second sampler reads both, and decides as the first would."""
    names = "atlassiansampling"
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    (second / "pipeline.yaml").write_text(PIPELINE.format(to=TO_TABLE))
    with otlp_receiver() as receiver:
        config = PIPELINE.format(to=f"{{type: otlp, endpoint: '{receiver.endpoint}'}}")
        (first / "pipeline.yaml").write_text(config.replace("policies:", f"names: {names}\n          policies:"))
        append(first, request((t, 0) for t in range(20)), request(((t, 0) for t in range(20, 30)), error=True))
        run_to_end(first)
        assert {span.trace_id for span in receiver.spans} == {trace_id(t) for t in range(20, 30)}
        receiver.requests.clear()
        assert "20 spans that wait" in Terminal(first).penstock("sample", "flush", "sampled").stdout
        run_to_end(first)
        assert totals(first) == (2, 38, 40, 0, 0, 0)
        left = [taken.request for taken in receiver.requests]
    marks = Counter(
        (attribute.key, attribute.value.int_value or attribute.value.bool_value)
        for message in left
        for group in message.resource_spans
        for attribute in group.resource.attributes
        for _ in range(sum(len(scope.spans) for scope in group.scope_spans))
        if attribute.key.startswith(names)
    )
    assert marks == {(f"{names}.flushes", 1): 20, (f"{names}.decision", True): 10}

    append(second, *(message.SerializeToString() for message in left))
    # What was decided before, and what was not.
    append(second, request((t, 1) for t in range(20, 30)), request(((t, 1) for t in range(10)), error=True))
    run_to_end(second)
    with open_file(second / "spans.duckdb", read_only=True) as warehouse:
        rows = warehouse.execute("SELECT trace_id, count(*) FROM spans GROUP BY ALL").fetchall()
    decided, waited = range(20, 30), range(10)
    assert dict(rows) == {trace_id(t).hex(): 1 for t in decided} | {trace_id(t).hex(): 2 for t in waited}
    assert totals(second)[2:] == (30, 10, 0, 10)


def test_what_leaves_by_otlp_is_what_came(tmp_path: Path) -> None:
    """Every attribute, event and link, the resource and the scope; what the sampler says of it stands behind."""
    came = [made_up(number) for number in range(12)]
    with otlp_receiver() as receiver:
        (tmp_path / "pipeline.yaml").write_text(PIPELINE.format(to=f"{{type: otlp, endpoint: '{receiver.endpoint}'}}"))
        append(tmp_path, *(each.SerializeToString() for each in came))
        run_to_end(tmp_path)
        left = [(group, scope, span) for taken in receiver.requests for group, scope, span in listed(taken.request)]
    assert totals(tmp_path)[2:] == (len(left), 0, 0, 0)
    for group, scope, span in left:
        said = {each.key: each.value for each in span.attributes[-2:]}
        assert said["sampling.policy"].string_value == "errors"
        assert said["sampling.adjusted_count"].double_value == 1
        del span.attributes[-2:]
        assert (group.resource, group.schema_url, scope.scope, scope.schema_url, span) in [
            (g.resource, g.schema_url, s.scope, s.schema_url, each) for body in came for g, s, each in listed(body)
        ]
    assert len(left) == sum(len(listed(body)) for body in came)


DROP = """\
            - name: drop
              type: downgrader
              emit_single_span_for_not_sampled: true
              downgrader: {downgrade_to: NotSampled, sub_policy: {name: flagged, type: trace_flags}}
"""


def test_what_was_refused_is_replayed_as_it_left(tmp_path: Path) -> None:
    """With what the sampler had written on it, and never a span in place of the one that says that it was dropped."""

    def named(name: str, trace: int, **fields: int) -> bytes:
        message = ExportTraceServiceRequest.FromString(request([(trace, 0)], error=not fields))
        span = message.resource_spans[0].scope_spans[0].spans[0]
        span.name, span.flags = name, fields.get("flags", 0)
        return bytes(message.SerializeToString())

    def came(receiver: OtlpReceiver) -> dict[str, dict[str, str]]:
        return {span.name: {each.key: each.value.string_value for each in span.attributes} for span in receiver.spans}

    with otlp_receiver() as receiver:
        config = PIPELINE.format(to=f"{{type: otlp, endpoint: '{receiver.endpoint}'}}")
        (tmp_path / "pipeline.yaml").write_text(config.replace("          policies:\n", f"          policies:\n{DROP}"))
        refused = {"bad", "TRACE NOT SAMPLED"}
        receiver.dislikes = lambda sent: any(span.name in refused for _, _, span in listed(sent))
        append(tmp_path, named("bad", 1), named("good", 2), named("secret", 3, flags=1))
        run_to_end(tmp_path)
        assert set(came(receiver)) == {"good"}
        assert totals(tmp_path) == (3, 0, 1, 0, 2, 0)
        receiver.dislikes = lambda _: False
        receiver.requests.clear()
        assert Terminal(tmp_path).penstock("failed", "replay", "--route", "sampled").returncode == 0
        run_to_end(tmp_path)
        found = came(receiver)
    assert set(found) == refused
    assert found["bad"]["sampling.policy"] == "errors"
    assert found["TRACE NOT SAMPLED"]["sampling.policy"] == "drop"
