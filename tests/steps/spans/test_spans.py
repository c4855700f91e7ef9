"""``spans`` makes a row of each span, and every one of them is accounted for."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pydantic import ValidationError

from penstock.config.loading import load
from penstock.destinations.contract import AnyDestination
from penstock.destinations.duckdb.config import DuckdbConfig
from penstock.destinations.duckdb.destination import DuckdbDestination
from penstock.destinations.file.config import FileConfig
from penstock.destinations.file.destination import FileDestination
from penstock.destinations.postgres.config import PostgresConfig
from penstock.destinations.postgres.destination import PostgresDestination
from penstock.errors import PenstockError
from penstock.outcome import Outcome
from penstock.record import Record, entries, placed
from penstock.steps.chain import Chain, Link
from penstock.steps.contract import TooMuch
from penstock.steps.spans import step as taking_apart
from penstock.steps.spans.config import SpansConfig
from penstock.steps.spans.step import Spans
from penstock.testing.destination import batch as batch_to_write
from penstock.testing.step import StepContract, failed, kept
from tests.support.database import Database
from tests.support.otlp_requests import REQUESTS, START, one_span, record, request, resource_spans, span


class TestSpans(StepContract):
    """What is of another namespace passes, whatever it is; the rest of this page is about traces."""

    name = "spans"
    reads_data = False
    adds = True
    configs: ClassVar[list[Any]] = [{}, {"attributes": "object", "times": "nanoseconds"}]


def batch_of(*records: Record) -> pa.RecordBatch:
    return placed(entries(records), 3, 100)


def take_apart(*records: Record, **options: Any) -> Outcome:
    return Spans(SpansConfig(**options)).apply(batch_of(*records))


def names(outcome: Outcome) -> list[str]:
    return [json.loads(row)["name"] for row in kept(outcome)]


THREE = request(resource_spans("shop", span(1), span(2)), resource_spans("cart", span(3)))


def test_each_span_becomes_a_row_under_the_place_of_its_request() -> None:
    outcome = take_apart(record(THREE), record(one_span(4)))
    assert names(outcome) == ["span 1", "span 2", "span 3", "span 4"]
    assert [json.loads(row)["service_name"] for row in kept(outcome)] == ["shop", "shop", "cart", "shop"]
    assert outcome.kept.column("offset").to_pylist() == [100, 100, 100, 101]
    assert outcome.kept.column("item").to_pylist() == [1, 2, 3, 0]
    assert (outcome.skipped, outcome.added) == (0, 2)


def test_a_row_is_json_to_whatever_comes_behind() -> None:
    outcome = take_apart(record(THREE), record(b"x", "logs"))
    assert [dict(headers) for headers in outcome.kept.column("headers").to_pylist()] == [
        {"token": "site"}, {"token": "site"}, {"token": "site"},
        {"token": "site", "content_type": "application/x-protobuf"},
    ]  # fmt: skip


def test_records_of_other_namespaces_pass_unchanged() -> None:
    others = batch_of(record(b"x", "logs"), Record(b"{}", namespace="web"))
    assert Spans(SpansConfig()).apply(others) == Outcome(others)
    outcome = take_apart(record(b"first", "metrics"), record(one_span(1)), record(b"last", "logs"))
    assert [outcome.kept.column("data").to_pylist()[at] for at in (0, 2)] == [b"first", b"last"]


def test_a_request_without_spans_is_skipped() -> None:
    outcome = take_apart(record(b""), record(request(resource_spans("shop"))), record(one_span(1)))
    assert (names(outcome), outcome.skipped, outcome.added) == (["span 1"], 2, 0)


def test_requests_in_json_are_requests() -> None:
    text = {"resourceSpans": [{"scopeSpans": [{"spans": [
        {"traceId": "01" * 16, "spanId": "02" * 8, "name": "json", "startTimeUnixNano": str(START)}
    ]}]}]}  # fmt: skip
    outcome = take_apart(record(json.dumps(text).encode(), content_type="application/json; charset=utf-8"))
    (row,) = map(json.loads, kept(outcome))
    assert (row["name"], row["trace_id"], row["start_time_unix_nano"]) == ("json", "01" * 16, START)


NOT_OTLP = [
    (b"\x0a\x05ab", "application/x-protobuf", "no protobuf"),
    (b"{}", None, "content type is missing"),
    (b"{}", "text/plain", "content type is 'text/plain'"),
    (None, "application/x-protobuf", "no data"),
    (b"{", "application/json", "no OTLP/JSON"),
    (b'{"resourceSpans": 7}', "application/json", "no OTLP/JSON"),
]


@pytest.mark.parametrize(("data", "content_type", "why"), NOT_OTLP)
def test_what_is_no_request_fails_and_the_rest_goes_on(data: bytes | None, content_type: str | None, why: str) -> None:
    outcome = take_apart(record(one_span(1)), record(data, content_type=content_type), record(one_span(2)))
    assert (names(outcome), failed(outcome)) == (["span 1", "span 2"], [(101, "not_otlp")])
    assert why in outcome.failures.column("message")[0].as_py()


BAD_IDS = [
    {"trace_id": b""}, {"trace_id": bytes(16)}, {"trace_id": b"\x01" * 15},
    {"span_id": b""}, {"span_id": bytes(8)}, {"span_id": b"\x01" * 9},
]  # fmt: skip


@pytest.mark.parametrize("ids", BAD_IDS)
def test_a_span_without_a_valid_id_fails_alone(ids: dict[str, bytes]) -> None:
    outcome = take_apart(record(request(resource_spans("shop", span(1), span(2, **ids), span(3)))))
    assert names(outcome) == ["span 1", "span 3"]
    assert outcome.kept.column("item").to_pylist() == [1, 3]
    (failure,) = outcome.failures.to_pylist()
    assert (failure["offset"], failure["item"], failure["code"]) == (100, 2, "bad_ids")
    assert outcome.added == 2
    ran = Chain([Link("spans", Spans(SpansConfig()))]).run(
        batch_of(record(request(resource_spans("shop", span(1), span(2, **ids)))))
    )
    assert (ran.kept.num_rows, [rows.num_rows for rows in ran.failures]) == (1, [1])


def test_a_request_that_would_grow_beyond_bounds_fails() -> None:
    """The resource is in every row: a small request can be a large table."""
    fat = resource_spans("s" * 10_000, *(span(number) for number in range(1, 101)))
    outcome = take_apart(record(one_span(1)), record(request(fat)), record(one_span(2)), max_bytes="100KB")
    assert (names(outcome), failed(outcome)) == (["span 1", "span 2"], [(101, "too_large")])
    assert take_apart(record(request(fat))).kept.num_rows == 100


def test_a_batch_that_would_be_too_much_is_tried_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking_apart, "MOST_BYTES", 2_000)
    records = [record(one_span(number)) for number in range(1, 9)]
    with pytest.raises(TooMuch):
        take_apart(*records)
    chain = Chain([Link("spans", Spans(SpansConfig()))])
    assert sum(outcome.kept.num_rows for _, outcome in chain.runs(batch_of(*records))) == 8


@settings(max_examples=60)
@given(st.lists(REQUESTS.map(ExportTraceServiceRequest.SerializeToString) | st.binary(max_size=8), max_size=4))
def test_whatever_comes_is_accounted_for(bodies: list[bytes]) -> None:
    step, records = Spans(SpansConfig()), [record(body) for body in bodies]
    batch = batch_of(*records)
    outcome = step.apply(batch)
    outcome.kept.validate(full=True)
    assert outcome.kept.schema == batch.schema
    rows_out = outcome.kept.num_rows + outcome.skipped + outcome.failures.num_rows
    assert rows_out == batch.num_rows + outcome.added
    assert pickle.loads(pickle.dumps(step)).apply(batch) == outcome
    alone = [step.apply(batch.slice(row, 1)) for row in range(batch.num_rows)]
    assert kept(outcome) == [row for each in alone for row in kept(each)]
    assert outcome.kept.column("item").to_pylist() == [
        item for each in alone for item in each.kept.column("item").to_pylist()
    ]


def test_its_slices_are_as_good_as_its_batches() -> None:
    batch = batch_of(*(record(one_span(number)) for number in range(1, 5)), record(b"x", "logs"))
    outcome = Spans(SpansConfig()).apply(batch.slice(2, 3))
    assert outcome.kept.column("offset").to_pylist() == [102, 103, 104]
    assert [len(headers) for headers in outcome.kept.column("headers").to_pylist()] == [1, 1, 2]


# Tables

ONE = span(
    1, kind=2, parent_span_id=b"\x07" * 8,
    attributes={"http.method": "GET", "big": 2**63 - 1, "nested": {"x": [1.5, "ü"]}},
    events=[{"name": "boom", "time_unix_nano": START}], links=[{"trace_id": b"\x01" * 16, "span_id": b"\x02" * 8}],
    end_time_unix_nano=START + 1_500,
)  # fmt: skip
MOMENT = datetime(2025, 11, 13, 2, 13, 20, tzinfo=UTC) + timedelta(microseconds=123_456)


def load_spans(destination: AnyDestination, folder: Path, *bodies: bytes, **options: Any) -> None:
    step = Spans(SpansConfig(**options))
    stager = destination.stager(folder, step.casts)
    outcome = stager.add(step.apply(batch_of(*map(record, bodies))).kept)
    assert outcome.failures.num_rows == 0
    receipt = destination.write(batch_to_write(), stager.finish())
    assert [rows.to_pylist() for rows in receipt.failures] == []


COLUMNS = {
    "trace_id", "span_id", "parent_span_id", "name", "kind", "start_time", "end_time", "duration_ns", "status_code",
    "status_message", "service_name", "attributes", "resource_attributes", "events", "links",
}  # fmt: skip


@pytest.mark.parametrize("times", ["microseconds", "nanoseconds"])
def test_duckdb_gets_json_columns_and_timestamps(times: str, tmp_path: Path) -> None:
    path = tmp_path / "traces.duckdb"
    destination = DuckdbDestination(DuckdbConfig(path=path, table="spans"))
    load_spans(destination, tmp_path, request(resource_spans("shop", ONE, span(2))), times=times)
    with duckdb.connect(str(path)) as database:
        types = {name: kind for name, kind, *_ in database.execute("DESCRIBE spans").fetchall()}
        assert types.keys() >= COLUMNS
        assert "_unmapped" not in types
        assert {types[name] for name in ("attributes", "resource_attributes", "events", "links")} == {"JSON"}
        fine = times == "nanoseconds"
        assert types["start_time"] == ("TIMESTAMP_NS" if fine else "TIMESTAMP WITH TIME ZONE")
        found = database.execute(
            "SELECT epoch_ns(start_time), duration_ns, attributes->>'http.method', (attributes->>'big')::BIGINT,"
            " resource_attributes->>'service.name', events->0->>'name', links->0->>'span_id' FROM spans ORDER BY name"
        ).fetchall()
    start = START if fine else START // 1_000 * 1_000
    assert found == [
        (start, 1_500, "GET", 2**63 - 1, "shop", "boom", "02" * 8),
        (start, 2, None, None, "shop", None, None),
    ]


def test_postgres_gets_json_columns_and_timestamps(database: Database, tmp_path: Path) -> None:
    config = PostgresConfig.model_validate({"url": database.dsn, "database_schema": database.schema, "table": "spans"})
    load_spans(PostgresDestination(config), tmp_path, request(resource_spans("shop", ONE, span(2))))
    types = database.columns("spans")
    assert types.keys() >= COLUMNS
    assert "_unmapped" not in types
    assert {types[name] for name in ("attributes", "resource_attributes", "events", "links")} == {"jsonb"}
    assert (types["start_time"], types["duration_ns"]) == ("timestamp with time zone", "bigint")
    found = database.ask(
        "SELECT start_time, start_time_unix_nano, attributes->>'http.method', (attributes->>'big')::bigint,"
        " events->0->>'name', links->0->>'span_id' FROM spans ORDER BY name"
    )
    assert found == [
        (MOMENT, START, "GET", 2**63 - 1, "boom", "02" * 8),
        (MOMENT, START, None, None, None, None),
    ]


def test_files_get_a_line_for_each_span(tmp_path: Path) -> None:
    destination = FileDestination(FileConfig(path=tmp_path / "out"))
    stage = tmp_path / "stage"
    stage.mkdir()
    load_spans(destination, stage, THREE, attributes="object", times="nanoseconds")
    (file,) = (tmp_path / "out").iterdir()
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["name"] for row in rows] == ["span 1", "span 2", "span 3"]
    assert rows[0]["resource_attributes"] == {"service.name": "shop", "host": "h"}
    assert rows[0]["start_time"] == "2025-11-13T02:13:20.123456789Z"


PIPELINE = """
name: shop
sources: {{web: {{type: file, path: ./x}}}}
routes: {{out: {{from: web, steps: [{{spans: {{times: nanoseconds}}}}], to: {to}}}}}
"""


def test_nanoseconds_for_an_engine_that_has_none_are_refused_before_it_starts(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(to="{type: duckdb, path: ./x.duckdb, table: spans}"))
    assert load(file)
    file.write_text(PIPELINE.format(to='{type: postgres, url: "postgresql://u@h/d", table: spans}'))
    with pytest.raises(PenstockError, match="timestamp_ns"):
        load(file)


def test_options_are_checked() -> None:
    with pytest.raises(ValidationError):
        SpansConfig.model_validate({"attributes": "columns"})
