"""Segment's messages, as its public format describes them and as its own library sends them."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Iterator
from uuid import UUID

import pytest
from segment.analytics.client import Client

from penstock.record import Header, Record
from penstock.sources.http.body.body_events import BadBody, Event
from penstock.sources.http.body.segment_messages import Call, message_id
from penstock.sources.http.config import LimitsConfig
from penstock.testing.waiting import eventually
from tests.sources.http.server import Running, collector

LIMITS = LimitsConfig(event_bytes=200, body_bytes=2000, body_events=5)


def messages(body: bytes, kind: str | None) -> list[Event]:
    return list(Call(body, kind, LIMITS).messages(lambda _: None))


def texts(body: bytes, kind: str | None = None) -> list[bytes]:
    return [event.text for event in messages(body, kind)]


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        (
            "track",
            b'{"event":"Paid","properties":{"p":2.50}}',
            b'{"event":"Paid","properties":{"p":2.50},"type":"track"}',
        ),
        ("page", b'{"type":"screen","n":1e400}', b'{"type":"screen","n":1e400}'),
        ("alias", b"{}", b'{"type":"alias"}'),
        ("alias", b" \xef\xbb\xbf{}"[1:], b'{"type":"alias"}'),
        ("group", b'{ "writeKey":"k", "a":1 }', b'{"a":1,"type":"group"}'),
        ("group", b'{"writeKey":"k"}', b'{"type":"group"}'),
        ("identify", b'{"a":1,"a":2,"s":"\\ud800"}', b'{"a":1,"a":2,"s":"\\ud800","type":"identify"}'),
    ],
)
def test_a_message_is_kept_as_it_is(kind: str, body: bytes, expected: bytes) -> None:
    assert texts(body, kind) == [expected]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"batch":[]}', []),
        (b'{"batch":[{"type":"track","p":2.50}]}', [b'{"type":"track","p":2.50}']),
        (b'{"batch":[{"a":1},{"sentAt":2}],"sentAt":"t"}', [b'{"a":1,"sentAt":"t"}', b'{"sentAt":2}']),
        (b'{"writeKey":"k","batch":[{"writeKey":"k","a":1}],"other":1}', [b'{"a":1}']),
        (b'{"context":{"ip":"1","os":{"n":1.0}},"batch":[{"a":1}]}', [b'{"a":1,"context":{"ip":"1","os":{"n":1.0}}}']),
        (
            b'{"batch":[{"context":{"os":{"v":2}},"a":1}],"context":{"ip":"1","os":{"n":1.0,"v":3}}}',
            [b'{"context":{"os":{"v":2,"n":1.0},"ip":"1"},"a":1}'],
        ),
        (b'{"batch":[{"context":null}],"context":{"ip":"1"}}', [b'{"context":null}']),
        (
            b'{"batch":[{"integrations":{"A":true}}],"integrations":{"All":false}}',
            [b'{"integrations":{"A":true,"All":false}}'],
        ),
        (b'{"batch":[{"x":0}],"batch":[{"y":0}]}', [b'{"y":0}']),
    ],
)
def test_a_batch_gives_its_messages_what_they_share(body: bytes, expected: list[bytes]) -> None:
    assert texts(body) == expected


@pytest.mark.parametrize(
    ("kind", "body", "status", "code", "index"),
    [
        (None, b"", 400, "empty_body", None),
        (None, b"[]", 400, "not_an_object", None),
        (None, b"{}", 400, "not_a_batch", None),
        (None, b'{"batch":{}}', 400, "not_a_batch", None),
        (None, b'{"batch":[{},7]}', 400, "not_an_object", 1),
        (None, b'{"batch":[{},{"a":"' + b"x" * 200 + b'"}]}', 413, "event_too_large", 1),
        (None, b'{"batch":[{"a":"' + b"x" * 150 + b'"}],"sentAt":"' + b"x" * 150 + b'"}', 413, "event_too_large", 0),
        (None, b'{"batch":[],"context":{"b":"' + b"x" * 200 + b'"}}', 413, "template_too_large", None),
        (None, b'{"batch":[{},{},{},{},{},{}]}', 413, "too_many_events", None),
        ("track", b"[{}]", 400, "not_an_object", None),
        ("track", b"{", 400, "not_json", None),
        ("track", b'{"a":"' + b"x" * 200 + b'"}', 413, "event_too_large", 0),
    ],
)
def test_a_call_that_is_refused_says_why(
    kind: str | None, body: bytes, status: int, code: str, index: int | None
) -> None:
    with pytest.raises(BadBody) as caught:
        texts(body, kind)
    assert (caught.value.status, caught.value.code, caught.value.index) == (status, code, index)


@pytest.mark.parametrize(
    ("given", "expected"), [(b'"m-1"', "m-1"), (b'""', None), (b"7", None), (b"null", None), (b'"\\ud800"', "\ud800")]
)
def test_a_messages_id_is_a_text(given: bytes, expected: str | None) -> None:
    (message,) = messages(b'{"messageId":' + given + b"}", "track")
    assert message_id(message) == expected


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with collector(tmp_path_factory.mktemp("segment")) as running:
        yield running


def data(record: Record) -> dict[str, object]:
    value: dict[str, object] = json.loads(record.data or b"")
    return value


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("write_key", "source"), [("public", None), ("private", "api")])
def test_segments_own_library_works_unchanged(web: Running, packed: bool, write_key: str, source: str | None) -> None:
    before = web.tail()
    failures: list[object] = []
    client = Client(write_key, host=web.url, gzip=packed, on_error=lambda error, _: failures.append(error))
    client.identify("u1", {"plan": "pro"})
    client.track("u1", "Order Paid", {"price": 2.5, "items": [1, 2]}, context={"ip": "192.0.2.1"})
    client.page("u1", "Docs", "Start", {"url": "https://shop.example"})
    client.screen("u1", "App", "Home")
    client.group("u1", "g1", {"name": "Shop"})
    client.alias("u0", "u1")
    client.shutdown()
    assert failures == []
    stored = web.since(before)
    events = [data(record) for record in stored]
    assert [event["type"] for event in events] == ["identify", "track", "page", "screen", "group", "alias"]
    assert {record.headers[Header.ENDPOINT] for record in stored} == {"segment"}
    for event in events:
        context = event["eventn_ctx"]
        assert isinstance(context, dict)
        assert context["event_id"] == event["messageId"]
        assert ("user_agent" in context) == (source is None)
        assert (event.get("src"), event["api_key"]) == (source, "site")
        assert event["sentAt"]
        assert "writeKey" not in event
    assert (events[1]["event"], events[1]["properties"]) == ("Order Paid", {"price": 2.5, "items": [1, 2]})


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        *[(f"/v1/{kind}", kind) for kind in ("track", "page", "identify", "group", "alias", "screen")],
        *[(f"/v1/{kind[0]}", kind) for kind in ("track", "page", "identify", "group", "alias", "screen")],
    ],
)
def test_a_single_call_takes_its_type_from_the_path(web: Running, path: str, kind: str) -> None:
    sent = b'{"userId":"u","traits":{"x":2.50},"messageId":"m-7","writeKey":"public"}'
    answer = web.post(path, sent, {"Content-Type": "text/plain", "User-Agent": "Page/1"})
    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "accepted": 1})
    record = web.records()[-1]
    head = b'{"userId":"u","traits":{"x":2.50},"messageId":"m-7","type":"%b","source_ip":' % kind.encode()
    assert (record.data or b"").startswith(head)
    assert data(record)["eventn_ctx"] == {"event_id": "m-7", "user_agent": "Page/1"}


@pytest.mark.parametrize("path", ["/v1/batch", "/v1/import", "/v1/b"])
def test_a_batch_is_taken_whole_or_not_at_all(web: Running, path: str) -> None:
    before = web.tail()
    basic = {"Authorization": "Basic " + b64encode(b"public:").decode()}
    packed = gzip.compress(b'{"batch":[{"n":1,"eventn_ctx":{"event_id":"mine"},"messageId":"m"},{"n":2}]}')
    assert web.post(path, packed, {**basic, "Content-Encoding": "gzip"}).json()["accepted"] == 2
    assert web.post(path, b'{"batch":[{"n":3},4]}', basic).status_code == 400
    first, second = (data(record) for record in web.since(before))
    assert (first["n"], second["n"]) == (1, 2)
    assert isinstance(first["eventn_ctx"], dict)
    assert isinstance(second["eventn_ctx"], dict)
    assert first["eventn_ctx"]["event_id"] == "mine"
    assert UUID(second["eventn_ctx"]["event_id"])


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b'{"batch":[]}', {}, 401, "no_token"),
        (b'{"batch":[],"writeKey":7}', {}, 401, "no_token"),
        (b'{"batch":[],"writeKey":"hidden-9"}', {}, 401, "unknown_token"),
        (b'{"batch":[],"writeKey":"public"}', {"X-Auth-Token": "hidden-9"}, 401, "unknown_token"),
        (b"nonsense", {}, 401, "no_token"),
        (b"", {}, 401, "no_token"),
    ],
)
def test_a_wrong_key_opens_nothing(web: Running, body: bytes, headers: dict[str, str], status: int, code: str) -> None:
    before = web.tail()
    answer = web.post("/v1/batch", body, headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert "hidden-9" not in answer.text
    assert web.since(before) == []
    eventually(lambda: web.pending_bytes() == 0, "nothing being held")
