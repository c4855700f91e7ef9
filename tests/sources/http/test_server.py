"""A real collector, asked over a real socket."""

from __future__ import annotations

import gzip
import json
import re
import socket
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from uuid import UUID

import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.log.format.frame import MAX_FRAME_BYTES
from penstock.record import Header, Record
from penstock.sources.contract import SourceContext
from penstock.sources.http import metrics
from penstock.sources.http.access.endpoints import ENDPOINTS
from penstock.sources.http.config import LARGEST_APPEND, HttpConfig
from penstock.sources.http.openapi.description import document
from penstock.sources.http.source import HttpSource, metrics_port
from penstock.testing.waiting import HANG, eventually
from tests.sources.http.server import CLIENT, SERVER, TOKENS, Running, collector
from tests.support import plain_http
from tests.support.ports import free_port

JS, API, BULK = "/api/v1/event", "/api/v1/s2s/event", "/api/v1/events/bulk"


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    limits = {"event_bytes": 2000, "body_bytes": 20_000, "body_timeout": "700ms", "header_timeout": "700ms"}
    with collector(tmp_path_factory.mktemp("web"), limits=limits, trusted_proxies=["127.0.0.1"]) as running:
        yield running


def newest(web: Running) -> Record:
    return web.records()[-1]


def data(record: Record) -> dict[str, object]:
    value: dict[str, object] = json.loads(record.data or b"")
    return value


@pytest.mark.parametrize("path", [JS, "/api/v1/events"])
def test_an_event_from_a_browser_is_kept_verbatim_with_its_context(web: Running, path: str) -> None:
    sent = b'{"b":2.50,"a":12345678901234567890123,"s":"\\ud800","eventn_ctx":{"x":1e400}}'
    answer = web.post(path, sent, {**CLIENT, "User-Agent": "Probe/1", "X-Forwarded-For": "2001:db8::7"})
    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "accepted": 1})
    record = newest(web)
    for piece in (b'"b":2.50,"a":12345678901234567890123,"s":"\\ud800"', b'"x":1e400'):
        assert piece in (record.data or b"")
    event = data(record)
    assert (event["source_ip"], event["api_key"]) == ("2001:db8::7", "site")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", str(event["_timestamp"]))
    inner = event["eventn_ctx"]
    assert isinstance(inner, dict)
    assert inner["user_agent"] == "Probe/1"
    assert UUID(inner["event_id"])
    assert "src" not in event
    assert record.headers == {Header.TOKEN: "site", Header.ENDPOINT: "js"}
    assert record.namespace == "web"


@pytest.mark.parametrize("path", [API, "/api/v1/s2s/events"])
def test_an_event_from_a_server_says_so(web: Running, path: str) -> None:
    assert web.post(path, b'{"eventn_ctx":{"event_id":"mine"}}', SERVER).status_code == 200
    event = data(newest(web))
    assert (event["src"], event["eventn_ctx"]) == ("api", {"event_id": "mine"})


@pytest.mark.parametrize("brought", [None, ""])
def test_an_id_that_is_none_is_no_id_on_any_endpoint(web: Running, brought: str | None) -> None:
    event = json.dumps({"eventn_ctx": {"event_id": brought}}).encode()
    before = len(web.records())
    for path, headers in ((JS, CLIENT), (API, SERVER), (BULK, SERVER), ("/v1/track", CLIENT)):
        assert web.post(path, event, headers).status_code == 200
    pixel = "/api/v1/p.gif?token=public&data=" + b64encode(event).decode()
    assert web.http.get(web.url + pixel).status_code == 200
    taken = [data(record)["eventn_ctx"] for record in web.records()[before:]]
    assert len({UUID(context["event_id"]) for context in taken if isinstance(context, dict)}) == 5


def test_arrays_and_templates_are_taken_whole(web: Running) -> None:
    before = len(web.records())
    assert web.post(JS, b'[{"n":1},{"n":2}]').json() == {"status": "ok", "accepted": 2}
    assert web.post(JS, b'{"template":{"t":1.0},"events":[{"n":3},{"n":4}]}').json()["accepted"] == 2
    assert web.post(JS, b"[]").json() == {"status": "ok", "accepted": 0}
    taken = web.records()[before:]
    assert [data(record)["n"] for record in taken] == [1, 2, 3, 4]
    assert b'"t":1.0' in (taken[-1].data or b"")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "empty_body"),
        (b"  ", 400, "empty_body"),
        (b'{"a":', 400, "not_json"),
        (b"3", 400, "not_an_object"),
        (b"[" * 19_000, 400, "not_json"),
        (b'[{"a":1},{"a":"' + b"x" * 2000 + b'"}]', 413, "event_too_large"),
        (b'{"a":"' + b"x" * 20_000 + b'"}', 413, "body_too_large"),
    ],
)
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_refused_leaves_nothing(
    web: Running, body: bytes, status: int, code: str, chunked: bool
) -> None:
    before = len(web.records())
    content = iter([body[:10], body[10:]]) if chunked else body
    answer = web.http.post(f"{web.url}{JS}", content=content, headers=CLIENT)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json().get("index") == (1 if code == "event_too_large" else None)
    assert len(web.records()) == before


@pytest.mark.parametrize(
    ("path", "headers", "query", "status", "text"),
    [
        (JS, {}, "", 401, "no token"),
        (JS, {"X-Auth-Token": "hidden-9"}, "", 401, "unknown token"),
        (API, CLIENT, "", 401, "server token"),
        (JS, SERVER, "", 401, "client_secret"),
        (JS, {}, "?token=public", 200, "ok"),
        (JS, {"api_key": "public"}, "", 200, "ok"),
        (JS, {"Authorization": "Basic " + b64encode(b"public:").decode()}, "", 200, "ok"),
        (API, CLIENT, "?token=private", 200, "ok"),
        (BULK, CLIENT, "", 200, "ok"),
        (BULK, SERVER, "", 200, "ok"),
        (BULK, {"api_key": "public", "X-Auth-Token": "hidden-9"}, "", 401, "unknown token"),
        (BULK, {"api_key": "hidden-9", "X-Auth-Token": "public"}, "", 200, "ok"),
        (BULK, {"api_key": "public", "Authorization": "Basic " + b64encode(b"hidden-9:").decode()}, "", 200, "ok"),
    ],
)
def test_tokens_open_what_they_are_for(
    web: Running, path: str, headers: dict[str, str], query: str, status: int, text: str
) -> None:
    answer = web.post(path, b'{"a":1}', headers, query)
    assert answer.status_code == status
    assert text in answer.text
    assert "hidden-9" not in answer.text
    assert ("www-authenticate" in answer.headers) == (status == 401)


def test_good_lines_go_on_and_bad_ones_are_kept(web: Running) -> None:
    before = len(web.records())
    body = b'{"n":1}\r\n\n{"n":\n[2]\n{"n":3}'
    assert web.post(BULK, body).json() == {"status": "ok", "accepted": 2, "malformed": 2}
    good, broken, array, last = web.records()[before:]
    assert [data(good)["n"], data(last)["n"]] == [1, 3]
    assert data(good)["src"] == "api"
    assert [broken.data, array.data] == [b'{"n":', b"[2]"]
    assert broken.headers[Header.MALFORMED].startswith("line 3: not JSON")
    assert array.headers[Header.MALFORMED].startswith("line 4: an array")
    assert {record.headers[Header.ENDPOINT] for record in (good, broken, array, last)} == {"bulk"}


@pytest.mark.parametrize("path", [JS, API, BULK])
@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_packed_bodies(web: Running, path: str, encoding: str) -> None:
    headers = {**(SERVER if path == API else CLIENT), "Content-Encoding": encoding}
    packed = pa.compress(b'{"n":1}', codec=encoding, asbytes=True)
    assert web.post(path, packed, headers).json()["accepted"] == 1
    assert web.post(path, b"nonsense", headers).json()["code"] == "damaged_body"
    bomb = pa.compress(b" " * 1_000_000, codec=encoding, asbytes=True)
    assert web.post(path, bomb, headers).status_code == 413


def test_small_events_that_their_context_makes_large_are_refused_and_harm_nobody(tmp_path: Path) -> None:
    body = gzip.compress(b"[" + b"{}," * 100_000 + b"{}]")
    headers = {**CLIENT, "Content-Encoding": "gzip", "User-Agent": '"' * 1024}
    with collector(tmp_path) as running:
        answer = running.post(JS, body, headers)
        assert (answer.status_code, answer.json()["code"]) == (413, "events_too_large")
        # By the same worker: one that ends is missed for a moment.
        assert running.post(JS, b'{"n":1}').status_code == 200
        assert [data(record)["n"] for record in running.records()] == [1]


def test_records_that_are_too_much_for_the_log_are_refused_and_the_log_is_not_taken_for_broken(tmp_path: Path) -> None:
    with collector(tmp_path, namespace="n" * 2000) as running:
        answer = running.post(BULK, b"x\n" * 40_000)
        assert (answer.status_code, answer.json()["code"]) == (413, "events_too_large")
        assert running.post(JS, b"{}").status_code == 200
        assert len(running.records()) == 1


def test_the_log_takes_the_largest_body_that_a_config_may_allow() -> None:
    assert LARGEST_APPEND <= MAX_FRAME_BYTES * 3 // 4


def test_an_unknown_encoding_is_named(web: Running) -> None:
    answer = web.post(JS, gzip.compress(b"{}"), {**CLIENT, "Content-Encoding": "br"})
    assert (answer.status_code, answer.json()["code"]) == (415, "unknown_encoding")


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", JS, 405, "POST, OPTIONS"),
        ("HEAD", "/api/v1/p.gif", 405, "GET, OPTIONS"),
        ("POST", "/api/v1/p.gif", 405, "GET, OPTIONS"),
        ("DELETE", "/v1/batch", 405, "POST, OPTIONS"),
        ("OPTIONS", BULK, 405, "POST"),
        ("OPTIONS", API, 405, "POST"),
        ("PUT", BULK, 405, "POST"),
        ("POST", "/readyz", 405, "GET, HEAD"),
        ("GET", "/metrics", 404, None),
        ("GET", "/nowhere", 404, None),
        ("HEAD", "/healthz", 200, None),
        ("GET", "/healthz", 200, None),
    ],
)
def test_methods_and_paths(web: Running, method: str, path: str, status: int, allow: str | None) -> None:
    answer = web.http.request(method, web.url + path)
    assert (answer.status_code, answer.headers.get("allow")) == (status, allow)


def test_metrics_count_what_happened(web: Running) -> None:
    names = [
        "penstock_collector_events_total",
        "penstock_collector_malformed_total",
        'penstock_collector_requests_total{endpoint="bulk"',
        "penstock_collector_commit_seconds_count",
    ]
    before = settled(lambda: [web.counted(name) for name in names])
    web.post(BULK, b'{"n":1}\n{"n":2}\nbad')
    grown = [old + new for old, new in zip(before, [2, 1, 1, 1], strict=True)]

    def have_grown() -> bool:
        # What requests before this one did may be counted late, by a worker that was held up.
        return all(web.counted(name) >= least for name, least in zip(names, grown, strict=True))

    eventually(have_grown, "the counters having grown by that")
    eventually(lambda: web.pending_bytes() == 0, "nothing being held")


def settled(look: Callable[[], list[float]]) -> list[float]:
    """What counters say when they have caught up with what went before."""
    seen = look()

    def again() -> bool:
        nonlocal seen
        before, seen = seen, look()
        return before == seen

    eventually(again, "the counters standing still", every=1.5)
    return seen


def test_counters_of_several_workers_are_one_sum_on_an_address_of_their_own(tmp_path: Path) -> None:
    with collector(tmp_path, workers=2) as web:
        for _ in range(30):
            # A connection each: the kernel deals them out to the workers.
            plain_http.post(f"{web.url}{JS}", content=b'{"n":1}', headers=CLIENT)
        eventually(lambda: web.counted("penstock_collector_events_total") == 30, "all events being counted")
        assert web.http.get(f"{web.url}/metrics").status_code == 404


def test_counters_are_shown_before_any_worker_has_counted(tmp_path: Path) -> None:
    end = metrics.serve_metrics("web", tmp_path, "127.0.0.1", port := free_port())
    try:
        page = plain_http.get(f"http://127.0.0.1:{port}/metrics")
    finally:
        end()
    assert page.status_code == 200
    assert 'penstock_collector_events_total{source="web"} 0.0' in page.text


def test_metrics_that_cannot_be_shown_where_they_should_are_an_error(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config = HttpConfig.model_validate({"listen": "127.0.0.1:0", "metrics": address, "tokens": TOKENS})
        context = SourceContext("web", tmp_path / "log", "{}", tmp_path / "state")
        with pytest.raises(PenstockError, match=r"PEN-HTTP-003.*web.*metrics"):
            HttpSource(config, context).run(Event())


def test_metrics_are_shown_beside_the_port_of_the_collector() -> None:
    assert [metrics_port(port) for port in (80, 8001, 64_535, 64_536, 65_535)] == [1080, 9001, 65_535, 63_536, 64_535]


def test_the_description_names_every_path_that_answers(web: Running) -> None:
    described = web.http.get(f"{web.url}/openapi.json").json()
    assert described == json.loads(json.dumps(document()))
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            answer = web.http.request(method, web.url + path)
            assert str(answer.status_code) in operation["responses"], path
    assert set(ENDPOINTS) < set(described["paths"])


@pytest.mark.parametrize("path", [JS, BULK, "/v1/track"])
@pytest.mark.parametrize("head", [b"", b"Trailer: X-Sum\r\n"])
def test_a_chunked_body_may_end_in_trailers(web: Running, path: str, head: bytes) -> None:
    before = len(web.records())
    with socket.create_connection(("127.0.0.1", web.port), timeout=HANG) as connection:
        for number in (b"1", b"2"):
            connection.sendall(b"POST " + path.encode() + b" HTTP/1.1\r\nHost: x\r\nX-Auth-Token: public\r\n" + head)
            connection.sendall(b'Transfer-Encoding: chunked\r\n\r\n3\r\n{"n\r\n4\r\n":%b}\r\n' % number)
            connection.sendall(b"0\r\nX-Sum: 1\r\nX-Other: 2\r\n\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    assert [data(record)["n"] for record in web.records()[before:]] == [1, 2]


def test_a_chunked_body_that_breaks_off_between_lines_leaves_nothing(web: Running) -> None:
    before = len(web.records())
    for end in (b"", b"0\r\nX-Sum: "):
        with socket.create_connection(("127.0.0.1", web.port), timeout=HANG) as connection:
            connection.sendall(b"POST /api/v1/events/bulk HTTP/1.1\r\nHost: x\r\nX-Auth-Token: public\r\n")
            connection.sendall(b'Transfer-Encoding: chunked\r\n\r\n8\r\n{"n":1}\n\r\n' + end)
            eventually(lambda: web.pending_bytes() == 8, "the part of a body")
            connection.shutdown(socket.SHUT_WR)
            assert not connection.recv(1000).startswith(b"HTTP/1.1 200")
        eventually(lambda: web.pending_bytes() == 0, "the end of the request")
    assert len(web.records()) == before


@pytest.mark.parametrize(
    ("lines", "address"),
    [
        (b"X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 9.9.9.9\r\n", "9.9.9.9"),
        (b"X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 9.9.9.9, 127.0.0.1\r\n", "9.9.9.9"),
        (b"X-Real-IP: 6.6.6.6\r\nX-Real-IP: 9.9.9.9\r\n", "9.9.9.9"),
    ],
)
def test_what_a_client_claims_in_a_line_of_its_own_is_not_believed(web: Running, lines: bytes, address: str) -> None:
    with socket.create_connection(("127.0.0.1", web.port), timeout=HANG) as connection:
        connection.sendall(b"POST /api/v1/event HTTP/1.1\r\nHost: x\r\nX-Auth-Token: public\r\n" + lines)
        connection.sendall(b"Content-Length: 2\r\n\r\n{}")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    assert data(newest(web))["source_ip"] == address


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (b"Content-Encoding: gzip\r\nContent-Encoding: gzip\r\n", b"415"),
        (b"Content-Encoding: gzip, zstd\r\n", b"415"),
        (b"Content-Encoding: identity\r\n", b"200"),
        (b"X-Folded: a\r\n b\r\n", b"400"),
        (b"X-Bytes: \xff\xfe\r\n", b"200"),
        (b"X-Auth-Token: other\r\n", b"200"),
        (b"Content-Length: 2\r\n", b"200"),
        (b"Content-Length: 3\r\n", b"400"),
    ],
)
def test_odd_lines_among_the_headers(web: Running, lines: bytes, status: bytes) -> None:
    with socket.create_connection(("127.0.0.1", web.port), timeout=HANG) as connection:
        connection.sendall(b"POST /api/v1/event HTTP/1.1\r\nHost: x\r\nX-Auth-Token: public\r\n" + lines)
        connection.sendall(b"Content-Length: 2\r\n\r\n{}")
        assert connection.recv(1000).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize(
    "rest",
    [
        b'Content-Length: 20\r\n\r\n{"n":1}',
        b'Transfer-Encoding: chunked\r\n\r\n7\r\n{"n":1}\r\n',
        b'Transfer-Encoding: chunked\r\n\r\n9\r\n{"n":1}',
        b'Transfer-Encoding: chunked\r\n\r\n{"n":1}',
    ],
)
def test_who_sends_a_body_that_breaks_off_and_listens_hears_so(web: Running, rest: bytes) -> None:
    before = web.tail()
    with socket.create_connection(("127.0.0.1", web.port), timeout=HANG) as connection:
        connection.sendall(b"POST /api/v1/event HTTP/1.1\r\nHost: x\r\nX-Auth-Token: public\r\n" + rest)
        connection.shutdown(socket.SHUT_WR)
        heard = b"".join(iter(lambda: connection.recv(1000), b""))
    assert heard.startswith(b"HTTP/1.1 400")
    assert b'"body_broken_off"' in heard
    assert web.tail() == before


def test_a_slow_body_is_given_up(web: Running) -> None:
    for head in (b"Content-Length: 100\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"):
        with socket.create_connection(("127.0.0.1", web.port), timeout=HANG) as connection:
            connection.sendall(b"POST /api/v1/event HTTP/1.1\r\nHost: x\r\nX-Auth-Token: public\r\n" + head)
            assert connection.recv(1000).startswith(b"HTTP/1.1 408")


def test_a_drip_of_small_chunks_does_not_hold_the_server(web: Running) -> None:
    with socket.create_connection(("127.0.0.1", web.port), timeout=HANG) as connection:
        connection.sendall(b"POST /api/v1/event HTTP/1.1\r\nHost: x\r\nX-Auth-Token: public\r\n")
        connection.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        connection.settimeout(0.1)
        answered = b""
        for _ in range(600):
            connection.sendall(b"1\r\n \r\n")
            try:
                answered = connection.recv(1000)
                break
            except TimeoutError:
                continue
        assert answered.startswith(b"HTTP/1.1 408")


def test_slow_headers_are_given_up(web: Running) -> None:
    with socket.create_connection(("127.0.0.1", web.port), timeout=HANG) as connection:
        connection.sendall(b"POST /api/v1/event HTTP/1.1\r\nHost: x\r\n")
        assert connection.recv(1000) == b""


def test_a_connection_that_breaks_inside_a_body_leaves_nothing(web: Running) -> None:
    before = len(web.records())
    for head, held in ((b"Content-Length: 17000\r\n\r\n", 10), (b"Transfer-Encoding: chunked\r\n\r\n8\r\n", 8)):
        with socket.create_connection(("127.0.0.1", web.port), timeout=HANG) as connection:
            connection.sendall(b"POST /api/v1/events/bulk HTTP/1.1\r\nHost: x\r\nX-Auth-Token: public\r\n" + head)
            connection.sendall(b'{"n":1}\n\r\n')
            eventually(lambda: web.pending_bytes() == held, "the part of a body")  # noqa: B023
        eventually(lambda: web.pending_bytes() == 0, "the end of the request")
    web.post(JS, b'{"after":1}')
    assert len(web.records()) == before + 1


def test_two_collectors_cannot_share_a_port(web: Running, tmp_path: Path) -> None:
    config = HttpConfig.model_validate(
        {"listen": f"127.0.0.1:{web.port}", "tokens": [{"id": "a", "client_secret": "b"}]}
    )
    stopping = Event()
    stopping.set()
    source = HttpSource(config, SourceContext("other", tmp_path / "log", "{}", tmp_path / "state"))
    with pytest.raises(PenstockError, match="PEN-HTTP-001"):
        source.run(stopping)


def test_the_secret_is_stored_only_when_asked(tmp_path: Path) -> None:
    with collector(tmp_path, expose_secret=True) as web:
        web.post(JS, b"{}")
        assert data(newest(web))["api_key"] == "public"
        assert newest(web).headers[Header.TOKEN] == "site"


def test_it_serves_over_ipv6(tmp_path: Path) -> None:
    with collector(tmp_path, host="[::1]") as web:
        assert web.post(JS, b"{}").status_code == 200
        assert data(newest(web))["source_ip"] == "::1"
