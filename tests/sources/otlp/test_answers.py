"""What a client is told: OTLP's status codes, with an error in the encoding of its request."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from penstock.record import Header, Op
from penstock.testing.waiting import HANG, eventually
from tests.sources.http.test_survival import dripping
from tests.sources.otlp.receiver import JSON, PROTOBUF, TOKENS, Running, receiver
from tests.sources.otlp.requests import SPAN, TRACE, traces, traces_json

GOOD = traces().SerializeToString()
GOOD_JSON = traces_json((TRACE.hex(), SPAN.hex()))
LARGEST = 200_000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    limits = {"body_bytes": LARGEST, "body_tokens": 1000, "body_timeout": "1s"}
    with receiver(tmp_path_factory.mktemp("answers"), limits=limits) as running:
        yield running


def error_of(answer: httpx.Response) -> tuple[int, str]:
    """Code and message of a refusal, in whichever encoding it says that it is."""
    if answer.headers["content-type"] == "application/json":
        found = answer.json()
        assert found.keys() == {"code", "message"}
        return found["code"], found["message"]
    assert answer.headers["content-type"] == "application/x-protobuf"
    status = Status.FromString(answer.content)
    return status.code, status.message


@pytest.mark.parametrize("signal", ["traces", "logs", "metrics"])
@pytest.mark.parametrize(("headers", "empty", "success"), [(PROTOBUF, b"", b""), (JSON, b"{}", b"{}")])
def test_an_empty_request_is_a_success(
    source: Running, signal: str, headers: dict[str, str], empty: bytes, success: bytes
) -> None:
    before = len(source.records())
    answer = source.post(empty, headers, signal)
    assert (answer.status_code, answer.content) == (200, success)
    assert answer.headers["content-type"] == headers["Content-Type"]
    assert len(source.records()) == before


@pytest.mark.parametrize(("headers", "body"), [(PROTOBUF, GOOD), (JSON, GOOD_JSON)])
@pytest.mark.parametrize("encoding", ["", "identity", "gzip"])
def test_a_request_is_stored_as_it_is(source: Running, headers: dict[str, str], body: bytes, encoding: str) -> None:
    before = len(source.records())
    sent = gzip.compress(body) if encoding == "gzip" else body
    answer = source.post(sent, headers, **({"Content-Encoding": encoding} if encoding else {}))
    assert (answer.status_code, answer.content) == (200, b"" if headers is PROTOBUF else b"{}")
    (record,) = source.records()[before:]
    assert (record.data, record.namespace, record.op, record.key) == (body, "traces", Op.INSERT, None)
    assert record.headers == {Header.CONTENT_TYPE: headers["Content-Type"], Header.ENDPOINT: "http"}


def test_parameters_of_the_media_type_do_not_matter(source: Running) -> None:
    assert source.post(GOOD_JSON, {"Content-Type": "Application/JSON; charset=utf-8"}).status_code == 200


@pytest.mark.parametrize("size", [7_000, 30_000, 150_000])
@pytest.mark.parametrize("packed", [False, True])
def test_requests_of_any_size_are_stored_as_they_are(source: Running, size: int, packed: bool) -> None:
    before = len(source.records())
    bodies = [
        (PROTOBUF, traces(pad=size).SerializeToString()),
        (JSON, GOOD_JSON[:-1] + b',"pad":"' + b"x" * size + b'"}'),
    ]
    for headers, body in bodies:
        sent = gzip.compress(body) if packed else body
        assert source.post(sent, headers, **({"Content-Encoding": "gzip"} if packed else {})).status_code == 200
    assert [record.data for record in source.records()[before:]] == [body for _, body in bodies]


def test_spans_with_wrong_ids_are_a_partial_success_and_stored_all_the_same(source: Running) -> None:
    before = len(source.records())
    body = traces((TRACE, SPAN), (b"", SPAN), (bytes(16), SPAN), (TRACE, b"1")).SerializeToString()
    answer = source.post(body)
    assert answer.status_code == 200
    partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert partial.rejected_spans == 3
    assert "3 of 4 spans" in partial.error_message
    text = traces_json(("", SPAN.hex()))
    answer = source.post(text, JSON)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json()["partialSuccess"]["rejectedSpans"] == "1"
    assert "1 of 1 spans" in answer.json()["partialSuccess"]["errorMessage"]
    assert [record.data for record in source.records()[before:]] == [body, text]
    eventually(lambda: source.counted("penstock_collector_malformed_total") >= 4, "the rejected spans being counted")


def nested(levels: int) -> bytes:
    """A request whose only attribute is an array in an array in an array."""
    value = b"\x18\x01"  # int_value 1
    for _ in range(levels):
        value = delimited(5, delimited(1, value))  # array_value, values
    for field in (2, 1, 1, 1):  # value of an attribute of the resource of a ResourceSpans of the request
        value = delimited(field, value)
    return value


def delimited(field: int, content: bytes) -> bytes:
    length, encoded = len(content), []
    while length > 127:
        encoded.append(length & 127 | 128)
        length >>= 7
    return bytes([field << 3 | 2, *encoded, length]) + content


BOMB = gzip.compress(bytes(50_000_000))
MANY = b'{"resourceSpans":[' + b",".join([b"{}"] * 2000) + b"]}"
REFUSED = [
    ("cut protobuf", PROTOBUF, GOOD[:-3], 400, 3),
    ("no protobuf", PROTOBUF, b"\xff" * 20, 400, 3),
    ("text that is no UTF-8", PROTOBUF, GOOD.replace(b"checkout", b"\xff" * 8), 400, 3),
    ("nested protobuf", PROTOBUF, nested(49), 400, 3),
    ("far too nested protobuf", PROTOBUF, nested(10_000), 400, 3),
    ("cut JSON", JSON, GOOD_JSON[:-1], 400, 3),
    ("no JSON", JSON, GOOD, 400, 3),
    ("nothing as JSON", JSON, b"", 400, 3),
    ("nested JSON", JSON, b"[" * 100_000, 413, 8),
    ("an enum by name", JSON, b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"kind":"SERVER"}]}]}]}', 400, 3),
    ("too many parts", JSON, MANY, 413, 8),
    ("large protobuf", PROTOBUF, traces(pad=LARGEST).SerializeToString(), 413, 8),
    ("large JSON", JSON, b" " * LARGEST + b"{}", 413, 8),
    ("a bomb", {**PROTOBUF, "Content-Encoding": "gzip"}, BOMB, 413, 8),
    ("a bomb of JSON", {**JSON, "Content-Encoding": "gzip"}, BOMB, 413, 8),
    ("damaged gzip", {**PROTOBUF, "Content-Encoding": "gzip"}, gzip.compress(GOOD)[:-9], 400, 3),
    ("no gzip", {**JSON, "Content-Encoding": "gzip"}, GOOD_JSON, 400, 3),
    ("another encoding", {**PROTOBUF, "Content-Encoding": "br"}, GOOD, 415, 12),
    ("two encodings", {**PROTOBUF, "Content-Encoding": "gzip, gzip"}, GOOD, 415, 12),
]  # fmt: skip


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_what_is_refused_is_told_in_the_encoding_of_the_request(
    source: Running, headers: dict[str, str], body: bytes, status: int, code: int
) -> None:
    before = len(source.records())
    answer = source.post(body, headers)
    assert (answer.status_code, error_of(answer)[0]) == (status, code)
    assert answer.headers["content-type"] == headers["Content-Type"]
    assert error_of(answer)[1]
    assert "retry-after" not in answer.headers
    assert len(source.records()) == before
    assert source.post(GOOD).status_code == 200


def test_nesting_that_protobuf_reads_is_taken(source: Running) -> None:
    assert source.post(nested(48)).status_code == 200


def test_a_chunked_body_that_is_too_large_is_refused(source: Running) -> None:
    answer = source.http.post(f"{source.url}/v1/traces", content=iter([bytes(50_000)] * 5), headers=PROTOBUF)
    assert (answer.status_code, error_of(answer)[0]) == (413, 8)


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/grpc", "application/protobuf"])
def test_another_media_type_is_415(source: Running, content_type: str | None) -> None:
    answer = source.post(GOOD, {"Content-Type": content_type} if content_type else {})
    assert answer.status_code == 415
    assert "application/x-protobuf" in error_of(answer)[1]


def test_other_paths_and_methods(source: Running) -> None:
    answer = source.http.post(f"{source.url}/v1/profiles", content=b"", headers=PROTOBUF)
    assert (answer.status_code, error_of(answer)[0]) == (404, 12)
    answer = source.http.get(f"{source.url}/v1/traces")
    assert (answer.status_code, error_of(answer)[0], answer.headers["allow"]) == (405, 12, "POST")
    assert source.http.get(f"{source.url}/healthz").json() == {"status": "ok"}
    assert source.http.get(f"{source.url}/readyz").status_code == 200


def test_a_body_that_does_not_come_is_not_waited_for(source: Running) -> None:
    with socket.create_connection(("127.0.0.1", source.port), timeout=HANG) as slow:
        slow.sendall(
            b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
        )
        assert slow.recv(1000).startswith(b"HTTP/1.1 408")


def test_a_full_disk_is_for_the_client_to_try_again(tmp_path: Path) -> None:
    with receiver(tmp_path, limits={"disk_reserve": "1000000TB"}) as source:

        def refused() -> httpx.Response | None:
            answer = source.post(GOOD)
            return None if answer.status_code == 200 else answer

        answer = eventually(refused, "the reserve being seen")
        assert (answer.status_code, error_of(answer)[0]) == (503, 14)
        assert int(answer.headers["retry-after"]) >= 1
        assert source.http.get(f"{source.url}/readyz").status_code == 503


def test_too_much_at_once_is_for_the_client_to_try_again(tmp_path: Path) -> None:
    head = (
        b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with receiver(tmp_path, limits={"pending_bytes": 1000}) as source:
        body = GOOD_JSON[:-1] + b" " * 700 + b"}"
        with socket.create_connection(("127.0.0.1", source.port), timeout=HANG) as slow:
            slow.sendall(head + b"258\r\n" + b" " * 600 + b"\r\n")
            with dripping(slow):
                eventually(lambda: source.counted("penstock_collector_pending") >= 600, "the slow body being held")
                answer = source.post(body, JSON)
                assert (answer.status_code, error_of(answer)[0]) == (503, 14)
                assert int(answer.headers["retry-after"]) >= 1
        eventually(lambda: source.counted("penstock_collector_pending") == 0, "the slow body being let go")
        assert source.post(body, JSON).status_code == 200
        assert [record.data for record in source.records()] == [body]


def test_the_counters_tell_spans_and_signals(tmp_path: Path) -> None:
    with receiver(tmp_path, tokens=TOKENS) as source:
        bearer = {"Authorization": "Bearer private"}
        assert source.post(traces((TRACE, SPAN), (TRACE, SPAN)).SerializeToString(), **bearer).status_code == 200
        assert source.post(b"{}", JSON, "logs", **bearer).status_code == 200
        assert source.post(b"", PROTOBUF, "metrics").status_code == 401
        eventually(lambda: source.counted("penstock_collector_events_total") == 2, "both spans")
        for signal, status in (("traces", 200), ("logs", 200), ("metrics", 401)):
            line = f'penstock_collector_requests_total{{endpoint="{signal}",source="spans",status="{status}"}}'
            eventually(lambda line=line: source.counted(line) == 1, line)  # type: ignore[misc]


def test_json_that_is_stored_says_so_to_its_reader(source: Running) -> None:
    before = len(source.records())
    source.post(GOOD_JSON, JSON)
    (record,) = source.records()[before:]
    assert json.loads(record.data or b"")["resourceSpans"]
    assert record.headers[Header.CONTENT_TYPE] == "application/json"
