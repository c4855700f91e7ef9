"""Logs that follow their traces for real: with Spark, over restarts and a kill, out by OTLP and into a table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from penstock.engine.layout import Layout
from penstock.log.local_log import LocalLog
from penstock.record import Record, entries
from tests.engine.stateful.run_to_end import run_to_end
from tests.engine.stateful.test_sampling_routes import PIPELINE, append, request, run_into, totals, trace_id
from tests.support.duckdb_file import open_file
from tests.support.otlp_receiver import otlp_receiver


def configure(folder: Path, to: str, follow: str = "[logs]") -> None:
    config = PIPELINE.format(to=to).replace("policies:", f"follow: {follow}\n          policies:")
    (folder / "pipeline.yaml").write_text(config)


def append_logs(folder: Path, *traces: int | None) -> None:
    """One request with a log for each of these traces, and one that is of none for each ``None``."""
    message = ExportLogsServiceRequest()
    group = message.resource_logs.add()
    group.resource.attributes.add(key="service.name").value.string_value = "shop"
    scope = group.scope_logs.add()
    for trace in traces:
        entry = scope.log_records.add(time_unix_nano=10**18, trace_id=b"" if trace is None else trace_id(trace))
        entry.body.string_value = f"of {trace}"
    record = Record(message.SerializeToString(), "logs", headers={"content_type": "application/x-protobuf"})
    with LocalLog(Layout(folder / "data").log).writer("spans") as writer:
        writer.append(entries([record]))


def test_logs_wait_for_their_traces_over_a_kill_and_leave_once(tmp_path: Path) -> None:
    configure(tmp_path, "{type: duckdb, path: ./spans.duckdb, table: entries, mode: stream}")
    append_logs(tmp_path, *range(20), None)
    run_to_end(tmp_path)
    assert totals(tmp_path) == (1, 20, 1, 0, 0, 20)
    append(tmp_path, request(((trace, 0) for trace in range(10)), error=True))
    run_into(tmp_path, "route.before_ledger_commit")
    totals(tmp_path)
    append_logs(tmp_path, 3, 3, 15)
    run_to_end(tmp_path)
    # Ten spans, their ten logs, two that came late, and one of no trace; eleven of traces that nothing is known of.
    assert totals(tmp_path) == (3, 31, 23, 0, 0, 11)
    with open_file(tmp_path / "spans.duckdb", read_only=True) as warehouse:
        bodies = warehouse.execute("SELECT body FROM entries WHERE body IS NOT NULL").fetchall()
    assert Counter(body for (body,) in bodies) == Counter([f"of {n}" for n in (None, 3, 3, *range(10))])


def test_logs_leave_by_otlp_and_without_follow_whole_requests_do(tmp_path: Path) -> None:
    with otlp_receiver() as receiver:
        configure(tmp_path, f"{{type: otlp, endpoint: '{receiver.endpoint}'}}")
        append_logs(tmp_path, 0, 1)
        append(tmp_path, request([(0, 0)], error=True))
        run_to_end(tmp_path)
        assert totals(tmp_path) == (2, 1, 2, 0, 0, 1)
        configure(tmp_path, f"{{type: otlp, endpoint: '{receiver.endpoint}'}}", follow="[]")
        append_logs(tmp_path, 5, 6, 7)
        run_to_end(tmp_path)
        assert totals(tmp_path) == (3, 1, 4, 0, 0, 0)
        sent = [taken.request for taken in receiver.requests if taken.path == "/v1/logs"]
    found = [
        (entry.body.string_value, [each.key for each in entry.attributes])
        for message in sent
        for group in message.resource_logs
        for scope in group.scope_logs
        for entry in scope.log_records
    ]
    assert dict(found) == {
        "of 0": ["sampling.policy", "sampling.adjusted_count"], "of 1": [], "of 5": [], "of 6": [], "of 7": []
    }  # fmt: skip
