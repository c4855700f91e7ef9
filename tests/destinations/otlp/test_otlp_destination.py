"""Requests at a receiver that takes what a collector takes: span by span what was staged, once if nothing crashes."""

from __future__ import annotations

import json
import logging
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.metrics.v1.metrics_pb2 import Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics
from pydantic import ValidationError

from penstock.config.secrets import secrets_in_options
from penstock.destinations.contract import AnyDestination, Part, Receipt
from penstock.destinations.otlp import destination as module
from penstock.destinations.otlp.config import OtlpConfig
from penstock.destinations.otlp.destination import OtlpDestination
from penstock.destinations.otlp.http_sender import LONGEST_PAUSE, Busy
from penstock.destinations.otlp.request_batches import halves, request_batches
from penstock.destinations.otlp.staged_requests import Place, StagedPiece
from penstock.errors import PenstockError, TransientError
from penstock.otlp.request_pieces import cut_request, join_request
from penstock.outcome import Outcome
from penstock.record import Record, entries, placed
from penstock.testing.crash import crash_at
from penstock.testing.destination import ReadableContract, Staging, batch, delivered_rows
from penstock.testing.large_batch import LARGE, load_elsewhere
from tests.sources.http.test_tls import certificate
from tests.support.otlp_receiver import LOSE_AFTER, LOSE_BEFORE, TAKE, OtlpReceiver, Reply, otlp_receiver, partial
from tests.support.otlp_requests import (
    REQUESTS,
    UNKNOWN,
    Placed,
    one_span,
    placed_spans,
    record,
    request,
    resource_spans,
    span,
)
from tests.support.ports import free_port


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as running:
        yield running


def make(receiver: OtlpReceiver, **options: Any) -> OtlpDestination:
    return OtlpDestination(OtlpConfig.model_validate({"endpoint": receiver.endpoint, **options}))


class Staged:
    """Records that are staged as a task would."""

    def __init__(self, destination: OtlpDestination, folder: Path, *records: Record) -> None:
        folder.mkdir(exist_ok=True)
        stager = destination.stager(folder, {})
        self.outcome: Outcome = stager.add(placed(entries(records), 0, 0))
        self.parts: Sequence[Part] = stager.finish()


def deliver(destination: OtlpDestination, folder: Path, *bodies: bytes) -> Receipt:
    return destination.write(batch(), Staged(destination, folder / "stage", *map(record, bodies)).parts)


def numbers(receiver: OtlpReceiver) -> list[int]:
    """Which spans it took, by the numbers that they were made of."""
    return [int.from_bytes(each.span_id, "big") for each in receiver.spans]


def received(receiver: OtlpReceiver) -> list[Placed]:
    return [placed for taken in receiver.requests for placed in placed_spans(taken.body)]


def failures(receipt: Receipt) -> list[tuple[int, str]]:
    rows = [row for some in receipt.failures for row in some.to_pylist()]
    return [(row["offset"], row["code"]) for row in rows]


# What every destination owes


class SpanStaging(Staging):
    """Stages the events of the suite as requests of one span, with the fields as attributes."""

    def stage(self, data: Sequence[bytes | None], partition: int = 0, first: int = 0, size: int = 10_000) -> list[Part]:
        stager = self.destination.stager(self.directory, self.casts)
        for start in range(0, len(data), size):
            rows = entries(_as_span(some) for some in data[start : start + size])
            self.outcomes.append(stager.add(placed(rows, partition, first + start)))
        return stager.finish()


def _as_span(data: bytes | None) -> Record:
    try:
        fields = json.loads(data or b"")
        return record(one_span(1, attributes=dict(fields)))
    except (ValueError, TypeError):
        return Record(data, namespace="web")


class TestOtlp(ReadableContract):
    @pytest.fixture(autouse=True)
    def _receiver(self, receiver: OtlpReceiver) -> None:
        self.receiver = receiver

    @pytest.fixture
    def staging(self, destination: AnyDestination, tmp_path: Path) -> SpanStaging:
        return SpanStaging(destination, tmp_path / "stage")

    def make(self, tmp_path: Path) -> OtlpDestination:
        return make(self.receiver)

    def ids(self, destination: AnyDestination) -> list[int]:
        attributes = [each for one in self.receiver.spans for each in one.attributes]
        return [each.value.int_value for each in attributes if each.key == "id"]

    def test_a_large_batch_does_not_take_memory_with_it(self, destination: AnyDestination, staging: Staging) -> None:
        """As the suite has it, with data that this destination takes."""
        bodies = [one_span(number, attributes={"text": f"{number:04000d}"}) for number in range(1, 1_001)]
        block = entries(map(record, bodies))
        taken = load_elsewhere(destination, staging.directory, block)
        assert taken.rows * block.column("data").nbytes >= LARGE * block.num_rows
        assert taken.to_stage < LARGE
        assert taken.to_write < self.most_memory_to_write
        assert len(self.receiver.spans) == taken.rows


# What arrives


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(REQUESTS, max_size=5), st.integers(1, 4), st.sampled_from([200, 1_000, 4 << 20]))
def test_every_span_arrives_with_its_resource_and_scope_in_its_order(
    receiver: OtlpReceiver,
    tmp_path: Path,
    requests: list[ExportTraceServiceRequest],
    max_spans: int,
    max_bytes: int,
) -> None:
    receiver.requests.clear()
    bodies = [each.SerializeToString() for each in requests]
    destination = make(receiver, max_spans=max_spans, max_bytes=max_bytes)
    deliver(destination, tmp_path, *bodies)
    assert received(receiver) == [each for body in bodies for each in placed_spans(body)]
    for taken in receiver.requests:
        count = len(list(placed_spans(taken.body)))
        assert 1 <= count <= max_spans
        assert len(taken.body) <= max_bytes or count == 1
    assert receiver.refused == []


def test_spans_of_one_service_share_a_request_and_its_resource(receiver: OtlpReceiver, tmp_path: Path) -> None:
    bodies = [one_span(number, "shop" if number < 8 else "cart") for number in range(1, 11)]
    receipt = deliver(make(receiver), tmp_path, *bodies)
    (taken,) = receiver.requests
    assert [len(each.scope_spans[0].spans) for each in taken.request.resource_spans] == [7, 3]
    assert (receipt.rows, receipt.tables[0].table, taken.encoding) == (10, "traces", "gzip")


def test_fields_that_nobody_knows_arrive(receiver: OtlpReceiver, tmp_path: Path) -> None:
    body = one_span(1)
    deliver(make(receiver), tmp_path, body + UNKNOWN, body)
    assert received(receiver) == [*placed_spans(body)] * 2
    assert sum(taken.body.count(UNKNOWN) for taken in receiver.requests) == 1


def test_large_requests_are_cut_and_small_ones_are_put_together(receiver: OtlpReceiver, tmp_path: Path) -> None:
    whole = request(resource_spans("shop", *map(span, range(1, 1_301))))
    receipt = deliver(make(receiver), tmp_path, whole, *(one_span(number) for number in range(1_301, 1_401)))
    assert [len(list(placed_spans(taken.body))) for taken in receiver.requests] == [512, 512, 376]
    assert numbers(receiver) == list(range(1, 1_401))
    assert receipt.rows == 101


def test_a_span_that_is_larger_than_a_request_may_be_is_sent_alone(receiver: OtlpReceiver, tmp_path: Path) -> None:
    fat = one_span(2, attributes={"text": "x" * 5_000})
    deliver(make(receiver, max_bytes="1KB"), tmp_path, one_span(1), fat, one_span(3))
    assert [len(list(placed_spans(taken.body))) for taken in receiver.requests] == [1, 1, 1]


def test_requests_in_json_arrive_as_protobuf(receiver: OtlpReceiver, tmp_path: Path) -> None:
    text = {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "01" * 16, "spanId": "02" * 8, "name": "j"}]}]}]}
    destination = make(receiver)
    staged = Staged(destination, tmp_path / "stage", record(json.dumps(text).encode(), content_type="application/json"))
    assert destination.write(batch(), staged.parts).rows == 1
    (one,) = receiver.spans
    assert (one.trace_id, one.name) == (b"\x01" * 16, "j")


LOGS = ExportLogsServiceRequest(
    resource_logs=[ResourceLogs(scope_logs=[ScopeLogs(log_records=[LogRecord(severity_text="INFO")] * 3)])]
)
METRICS = ExportMetricsServiceRequest(
    resource_metrics=[
        ResourceMetrics(
            scope_metrics=[ScopeMetrics(metrics=[Metric(name="m", gauge=Gauge(data_points=[NumberDataPoint()] * 4))])]
        )
    ]
)


def test_each_signal_goes_to_its_own_path(receiver: OtlpReceiver, tmp_path: Path) -> None:
    destination = make(receiver, compression="none", max_spans=2)
    staged = Staged(
        destination,
        tmp_path / "stage",
        record(one_span(1)),
        record(LOGS.SerializeToString(), "logs"),
        record(METRICS.SerializeToString(), "metrics"),
    )
    receipt = destination.write(batch(), staged.parts)
    assert {(table.table, table.rows) for table in receipt.tables} == {("traces", 1), ("logs", 1), ("metrics", 1)}
    assert sorted(taken.path for taken in receiver.requests) == ["/v1/logs", "/v1/logs", "/v1/metrics", "/v1/traces"]
    assert {taken.encoding for taken in receiver.requests} == {""}


NOT_OTLP = [
    record(b"{}", "web"),
    record(b"{}", content_type=None),
    record(b"{}", content_type="text/plain"),
    record(b"\x0a\x05ab"),
    record(b"{", content_type="application/json"),
    record(None),
    record(one_span(1)[:-3]),
]


@pytest.mark.parametrize("bad", NOT_OTLP, ids=[f"{bad.namespace} {bad.data!r:.20}" for bad in NOT_OTLP])
def test_what_is_no_request_fails_before_anything_is_sent(bad: Record, receiver: OtlpReceiver, tmp_path: Path) -> None:
    destination = make(receiver)
    staged = Staged(destination, tmp_path / "stage", record(one_span(1)), bad, record(one_span(2)))
    (failure,) = staged.outcome.failures.to_pylist()
    assert (failure["offset"], failure["code"]) == (1, "not_otlp")
    assert destination.write(batch(), staged.parts).rows == 2


def test_a_request_without_spans_is_skipped(receiver: OtlpReceiver, tmp_path: Path) -> None:
    staged = Staged(make(receiver), tmp_path / "stage", record(b""), record(request(resource_spans("shop"))))
    assert (staged.outcome.skipped, staged.parts) == (2, [])


# What a target may answer


def write(destination: OtlpDestination, parts: Sequence[Part], tries: int = 10) -> Receipt:
    """Try again as the engine does, without its waits."""
    for _ in range(tries - 1):
        try:
            return destination.write(batch(), parts)
        except TransientError:
            pass
    return destination.write(batch(), parts)


@pytest.mark.parametrize("status", [429, 502, 503, 504, 401, 403, 404, 307])
def test_what_can_be_tried_again_is_and_nothing_comes_twice(
    status: int, receiver: OtlpReceiver, tmp_path: Path
) -> None:
    destination = make(receiver, max_spans=2)
    receiver.replies = deque([TAKE, Reply(status, message="later"), TAKE, Reply(status)])
    parts = Staged(destination, tmp_path / "stage", *(record(one_span(number)) for number in range(1, 8))).parts
    with pytest.raises(TransientError, match=rf"PEN-DST-13[01]: .*answers {status}: later"):
        destination.write(batch(), parts)
    receipt = write(destination, parts)
    assert (numbers(receiver), receipt.rows, receipt.failures) == ([1, 2, 3, 4, 5, 6, 7], 7, [])


@pytest.mark.parametrize("again", [1, 2, 3])
def test_a_row_of_many_spans_goes_on_where_it_was(again: int, receiver: OtlpReceiver, tmp_path: Path) -> None:
    destination = make(receiver, max_spans=3)
    receiver.replies = deque([*[TAKE] * again, Reply(503)])
    whole = request(resource_spans("shop", *map(span, range(1, 11))), resource_spans("cart", span(11)))
    parts = Staged(destination, tmp_path / "stage", record(whole), record(one_span(12))).parts
    assert write(destination, parts, tries=2).rows == 2
    assert numbers(receiver) == list(range(1, 13))


def test_a_connection_that_is_lost_is_made_again(receiver: OtlpReceiver, tmp_path: Path) -> None:
    destination = make(receiver, max_spans=1)
    receiver.replies = deque([LOSE_BEFORE])
    parts = Staged(destination, tmp_path / "stage", record(one_span(1)), record(one_span(2))).parts
    with pytest.raises(TransientError, match="PEN-DST-131"):
        destination.write(batch(), parts)
    receiver.replies = deque([TAKE, LOSE_BEFORE])
    assert destination.write(batch(), parts).rows == 2
    assert numbers(receiver) == [1, 2]


def test_only_what_was_under_way_when_an_answer_got_lost_comes_twice(receiver: OtlpReceiver, tmp_path: Path) -> None:
    destination = make(receiver, max_spans=1)
    receiver.replies = deque([LOSE_AFTER])
    parts = Staged(destination, tmp_path / "stage", record(one_span(1)), record(one_span(2))).parts
    assert write(destination, parts).rows == 2
    assert numbers(receiver) == [1, 1, 2]


def test_a_target_that_takes_too_long_is_tried_again(receiver: OtlpReceiver, tmp_path: Path) -> None:
    destination = make(receiver, timeout="200ms")
    receiver.replies = deque([Reply(takes=False, delay=1.0)])
    parts = Staged(destination, tmp_path / "stage", record(one_span(1))).parts
    with pytest.raises(TransientError, match="timed out"):
        destination.write(batch(), parts)
    assert destination.write(batch(), parts).rows == 1


def test_a_target_that_is_not_there_is_waited_for(tmp_path: Path) -> None:
    destination = OtlpDestination(OtlpConfig(endpoint=f"http://127.0.0.1:{free_port()}"))
    parts = Staged(destination, tmp_path / "stage", record(one_span(1))).parts
    with pytest.raises(TransientError, match="PEN-DST-131: the OTLP endpoint cannot be reached"):
        destination.write(batch(), parts)
    with pytest.raises(TransientError):
        destination.check()


def test_a_batch_that_a_crash_broke_off_is_sent_again(receiver: OtlpReceiver, tmp_path: Path) -> None:
    destination = make(receiver, max_spans=1)
    parts = Staged(destination, tmp_path / "stage", record(one_span(1)), record(one_span(2))).parts
    with crash_at("destination.writing"):
        destination.write(batch(), parts)
    restarted = make(receiver, max_spans=1)
    assert restarted.write(batch(), parts).rows == 2
    assert numbers(receiver) == [1, 1, 2]


@pytest.mark.parametrize("status", [429, 503])
def test_a_target_that_asks_to_be_left_alone_is(
    status: int, receiver: OtlpReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = make(receiver)
    parts = Staged(destination, tmp_path / "stage", record(one_span(1))).parts
    receiver.replies = deque([Reply(status, {"Retry-After": "20"})])
    with pytest.raises(Busy):
        destination.write(batch(), parts)
    for _ in range(3):
        with pytest.raises(TransientError, match=r"left alone for another (19|20) s"):
            destination.write(batch(), parts)
    assert receiver.attempts == 1
    later = time.monotonic() + 20
    monkeypatch.setattr("penstock.destinations.otlp.destination.time.monotonic", lambda: later)
    assert destination.write(batch(), parts).rows == 1


def date_in(seconds: int) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


PAUSES: dict[str, tuple[Callable[[], str | None], float]] = {
    "seconds": (lambda: "3", 3.0),
    "none": (lambda: "0", 0.0),
    "a date to come": (lambda: date_in(200), 200.0),
    "a date that has passed": (lambda: date_in(-100), 0.0),
    "too long": (lambda: "99999999", LONGEST_PAUSE),
    "words": (lambda: "soon", 0.0),
    "a negative number": (lambda: "-5", 0.0),
    "nothing": (lambda: None, 0.0),
}


@pytest.mark.parametrize("said", PAUSES)
def test_how_long_it_asks_for(said: str, receiver: OtlpReceiver, tmp_path: Path) -> None:
    header, pause = PAUSES[said]
    destination = make(receiver)
    parts = Staged(destination, tmp_path / "stage", record(one_span(1))).parts
    text = header()
    receiver.replies = deque([Reply(503, {} if text is None else {"Retry-After": text})])
    with pytest.raises(Busy) as raised:
        destination.write(batch(), parts)
    # A busy machine takes its time, and a date has no fractions.
    assert pause - 100 <= raised.value.pause <= pause


def dislikes(*bad: int) -> Any:
    ids = {number.to_bytes(8, "big") for number in bad}
    return lambda sent: any(
        each.span_id in ids for group in sent.resource_spans for scope in group.scope_spans for each in scope.spans
    )


@pytest.mark.parametrize("bad", [(7,), (1, 40), (10, 11, 12), tuple(range(1, 41))])
def test_refused_rows_are_found_and_their_neighbours_arrive_once(
    bad: tuple[int, ...], receiver: OtlpReceiver, tmp_path: Path
) -> None:
    receiver.dislikes = dislikes(*bad)
    receipt = deliver(make(receiver, max_spans=16), tmp_path, *map(one_span, range(1, 41)))
    assert failures(receipt) == [(number - 1, "refused") for number in bad]
    assert numbers(receiver) == [number for number in range(1, 41) if number not in bad]
    assert delivered_rows(receipt) == 40
    (first, *_) = receipt.failures[0].column("message").to_pylist()
    assert "answers 400: an entry that nobody takes" in first


def test_after_a_transient_error_the_search_goes_on_where_it_was(receiver: OtlpReceiver, tmp_path: Path) -> None:
    receiver.dislikes = dislikes(3)
    receiver.replies = deque([TAKE, TAKE, Reply(503)])
    destination = make(receiver)
    parts = Staged(destination, tmp_path / "stage", *(record(one_span(number)) for number in range(1, 9))).parts
    receipt = write(destination, parts)
    assert (failures(receipt), numbers(receiver)) == ([(2, "refused")], [1, 2, 4, 5, 6, 7, 8])


def test_a_row_of_which_a_span_is_refused_fails_as_a_whole(receiver: OtlpReceiver, tmp_path: Path) -> None:
    receiver.dislikes = dislikes(2)
    whole = request(resource_spans("shop", span(1), span(2), span(3)))
    receipt = deliver(make(receiver), tmp_path, whole, one_span(4))
    assert (failures(receipt), numbers(receiver)) == ([(0, "refused")], [4])


def test_a_body_that_is_too_large_for_the_target_is_sent_in_smaller_ones(
    receiver: OtlpReceiver, tmp_path: Path
) -> None:
    receiver.max_body = 2_000
    whole = request(resource_spans("shop", *map(span, range(1, 201))))
    fat = one_span(201, attributes={"text": "x" * 3_000})
    receipt = deliver(make(receiver), tmp_path, whole, fat, one_span(202))
    assert (failures(receipt), numbers(receiver)) == ([(1, "refused")], [*range(1, 201), 202])


def test_the_search_for_refused_rows_has_an_end(
    receiver: OtlpReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_SEARCHES", 5)
    receiver.dislikes = lambda _: True
    receipt = deliver(make(receiver, max_spans=64), tmp_path, *map(one_span, range(1, 257)))
    assert len(failures(receipt)) == 256
    assert receiver.attempts <= 5 + 256 // 64 + 5


@pytest.mark.parametrize("body", [None, b"nope", b"x" * 10_000, b"\xff\xfe"])
def test_what_the_target_says_is_in_the_message_cut_short(
    body: bytes | None, receiver: OtlpReceiver, tmp_path: Path
) -> None:
    receiver.replies = deque([Reply(400, body=body, message="bad span")])
    (rows,) = deliver(make(receiver), tmp_path, one_span(1)).failures
    (message,) = rows.column("message").to_pylist()
    assert message.startswith(f"127.0.0.1:{receiver.port} answers 400: ")
    assert len(message) < 400


# Partial success


def test_a_partial_success_is_not_sent_again_and_is_counted(
    receiver: OtlpReceiver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.replies = deque([partial(2, "too old"), TAKE])
    with caplog.at_level(logging.WARNING):
        receipt = deliver(make(receiver, max_spans=4), tmp_path, *map(one_span, range(1, 9)))
    (table,) = receipt.tables
    assert (table.rows, table.skipped, table.failures, table.accounted) == (6, {"rejected": 2}, None, 8)
    assert receiver.attempts == 2
    assert "rejects 2 entries: too old" in caplog.text


def test_a_request_of_which_nothing_is_accepted_fails(receiver: OtlpReceiver, tmp_path: Path) -> None:
    receiver.replies = deque([partial(2, "too old"), TAKE])
    receipt = deliver(make(receiver, max_spans=2), tmp_path, *map(one_span, range(1, 5)))
    assert failures(receipt) == [(0, "rejected"), (1, "rejected")]
    assert (receipt.rows, receipt.failures[0].column("message").to_pylist()) == (2, ["too old"] * 2)


def test_of_rows_with_several_spans_nobody_knows_which_was_rejected(receiver: OtlpReceiver, tmp_path: Path) -> None:
    receiver.replies = deque([partial(2)])
    (table,) = deliver(make(receiver), tmp_path, request(resource_spans("shop", span(1), span(2), span(3)))).tables
    assert (table.rows, table.skipped) == (1, {})


def test_rejected_data_points_are_no_metrics(receiver: OtlpReceiver, tmp_path: Path) -> None:
    destination = make(receiver)
    receiver.replies = deque([partial(3, "stale")])
    parts = Staged(destination, tmp_path / "stage", record(METRICS.SerializeToString(), "metrics")).parts
    (table,) = destination.write(batch(), parts).tables
    assert (table.rows, table.skipped, table.failures) == (1, {}, None)


def test_a_warning_of_the_target_is_no_failure(
    receiver: OtlpReceiver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.replies = deque([partial(0, "use a newer schema")])
    assert deliver(make(receiver), tmp_path, one_span(1)).rows == 1
    assert "use a newer schema" in caplog.text


# Options


def test_headers_are_sent_and_are_secret(receiver: OtlpReceiver, tmp_path: Path) -> None:
    receiver.token = "s3cret-token"
    destination = make(receiver, headers={"Authorization": "Bearer s3cret-token", "X-Tenant": "shop"})
    assert deliver(destination, tmp_path, one_span(1)).rows == 1
    assert receiver.requests[0].headers["X-Tenant"] == "shop"
    assert "Bearer s3cret-token" in set(secrets_in_options(destination.config))
    assert "s3cret" not in repr(destination.config)
    assert destination.check() == f"{receiver.endpoint} takes traces by OTLP"
    with pytest.raises(TransientError, match="PEN-DST-131"):
        make(receiver, headers={"Authorization": "Bearer wrong"}).check()


def test_a_prefix_of_the_path_is_kept(receiver: OtlpReceiver, tmp_path: Path) -> None:
    destination = OtlpDestination(OtlpConfig(endpoint=f"{receiver.endpoint}/otlp/"))
    with pytest.raises(TransientError, match="no signal at /otlp/v1/traces"):
        deliver(destination, tmp_path, one_span(1))


def test_an_endpoint_that_is_none_is_told_so(receiver: OtlpReceiver) -> None:
    receiver.replies = deque([Reply(400, body=b"what?")])
    with pytest.raises(PenstockError, match=r"PEN-DST-133: an empty OTLP request was refused: .*what"):
        make(receiver).check()


WRONG: list[dict[str, Any]] = [
    {"endpoint": "127.0.0.1:4318"},
    {"endpoint": "grpc://127.0.0.1:4317"},
    {"endpoint": "http://user:word@h:1"},
    {"endpoint": "http://h/v1/traces"},
    {"headers": {"bad name": "x"}},
    {"headers": {"x": "a\r\nb: c"}},
    {"headers": {"Content-Type": "text/plain"}},
    {"max_spans": 0},
    {"max_bytes": 0},
    {"compression": "zstd"},
    {"ca": "./ca.pem"},
]


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        OtlpConfig.model_validate({"endpoint": "http://h:4318", **options})


def test_a_certificate_is_trusted_if_the_config_says_so(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(files["cert"], files["key"])
    with otlp_receiver(tls) as secure:
        assert deliver(make(secure, ca=files["cert"]), tmp_path, one_span(1)).rows == 1
        assert numbers(secure) == [1]
        with pytest.raises(TransientError, match="CERTIFICATE_VERIFY_FAILED"):
            make(secure).check()


def test_a_file_that_has_no_certificates_is_told(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("none")
    destination = OtlpDestination(OtlpConfig(endpoint="https://127.0.0.1:1", ca=tmp_path / "ca.pem"))
    with pytest.raises(PenstockError, match="PEN-DST-132"):
        destination.check()


def test_it_takes_otlp_and_says_so() -> None:
    assert OtlpConfig.takes_otlp


# Requests, by their rules


def pieces_of(*bodies: bytes) -> list[StagedPiece]:
    found = []
    for offset, body in enumerate(bodies):
        cut = list(cut_request(body))
        first = 0
        for piece in cut:
            found.append(StagedPiece(Place(0, offset, 0, 0), first, sum(len(each.entries) for each in cut), piece))
            first += len(piece.entries)
    return found


@settings(max_examples=100)
@given(st.lists(REQUESTS, max_size=4), st.booleans())
def test_halves_have_all_entries_in_their_order(requests: list[ExportTraceServiceRequest], inside_rows: bool) -> None:
    pieces = pieces_of(*(each.SerializeToString() for each in requests))
    cut = halves(pieces, inside_rows)
    places = [piece.place for piece in pieces]
    if cut is None:
        assert len(set(places)) <= 1 if not inside_rows else sum(map(len, pieces)) <= 1
        return
    left, right = cut
    assert left
    assert right
    whole = list(placed_spans(join_request(piece.piece for piece in pieces)))
    assert [each for half in cut for each in placed_spans(join_request(piece.piece for piece in half))] == whole
    assert inside_rows or left[-1].place != right[0].place
    if inside_rows:
        assert abs(sum(map(len, left)) - sum(map(len, right))) <= 1


@given(st.lists(REQUESTS, max_size=4), st.integers(1, 5), st.integers(1, 2_000))
def test_requests_stay_within_their_bounds(
    requests: list[ExportTraceServiceRequest], max_entries: int, max_bytes: int
) -> None:
    pieces = pieces_of(*(each.SerializeToString() for each in requests))
    made = list(request_batches(pieces, max_entries, max_bytes))
    assert [entry for each in made for piece in each for entry in piece.piece.entries] == [
        entry for piece in pieces for entry in piece.piece.entries
    ]
    for each in made:
        entries_of_it = sum(map(len, each))
        assert entries_of_it <= max_entries
        assert entries_of_it == 1 or len(join_request(piece.piece for piece in each)) <= max_bytes


def test_rows_of_one_item_are_told_apart(receiver: OtlpReceiver, tmp_path: Path) -> None:
    """A step in Spark may make several rows of an item."""
    destination = make(receiver)
    rows = placed(entries([record(one_span(1)), record(one_span(2))]), 0, 0)
    rows = rows.set_column(1, rows.schema.field(1), pa.array([0, 0], pa.int64()))
    stager = destination.stager(tmp_path, {})
    stager.add(rows)
    receiver.dislikes = dislikes(2)
    receipt = destination.write(batch(), stager.finish())
    assert (receipt.rows, failures(receipt), numbers(receiver)) == (1, [(0, "refused")], [1])
