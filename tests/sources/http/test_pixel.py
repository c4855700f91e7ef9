"""An event in the address of an image."""

from __future__ import annotations

import json
import socket
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.record import Header
from penstock.sources.http.body.body_events import BadBody
from penstock.sources.http.body.pixel import event
from penstock.sources.http.config import LimitsConfig
from penstock.testing.waiting import HANG
from tests.sources.http.server import Running, collector

LIMITS = LimitsConfig(event_bytes=1000, body_bytes=1000, body_events=10)


def packed(text: bytes) -> str:
    return quote(b64encode(text).decode(), safe="")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", b"{}"),
        ("token=secret", b"{}"),
        ("a=1", b'{"a":"1"}'),
        ("user.email=a%40b.example&user.id=7", b'{"user":{"email":"a@b.example","id":"7"}}'),
        ("a=x+y%20z", b'{"a":"x y z"}'),
        ("a", b'{"a":""}'),
        ("a=b=c", b'{"a":"b=c"}'),
        ("&&a=1&", b'{"a":"1"}'),
        ("a=1&a=2", b'{"a":"2"}'),
        ("a=1&a.b=2", b'{"a":{"b":"2"}}'),
        ("a.b=2&a=1", b'{"a":"1"}'),
        ("a..b=1", b'{"a":{"":{"b":"1"}}}'),
        ("=x", b'{"":"x"}'),
        ("a=%22%5C%00", b'{"a":"\\"\\\\\\u0000"}'),
        ("%D0%BA=%D1%8E", b'{"\\u043a":"\\u044e"}'),
        ("data=" + packed(b"{}"), b"{}"),
        ("data=" + packed(b' {"p":2.50, "q":1e400} '), b'{"p":2.50, "q":1e400}'),
        (
            "data=" + packed(b'{"p":2.50,"u":{"x":1.0,"y":0}}') + "&u.y=7&z=1",
            b'{"p":2.50,"u":{"x":1.0,"y":"7"},"z":"1"}',
        ),
        ("u.y=7&data=" + packed(b'{"u":1}'), b'{"u":{"y":"7"}}'),
        ("data=" + packed(b'\xef\xbb\xbf{"a":1}'), b'{"a":1}'),
    ],
)
def test_parameters_become_paths_over_the_data(query: str, expected: bytes) -> None:
    found = event(query, LIMITS)
    assert found.text == expected
    assert json.loads(expected) == found.value or b"1e400" in expected


@given(st.dictionaries(st.text(max_size=4), st.text(max_size=6) | st.integers(), max_size=4), st.integers(0, 3))
def test_base64_of_either_alphabet_with_or_without_padding(value: dict[str, object], form: int) -> None:
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    encoded = (urlsafe_b64encode if form & 1 else b64encode)(text).decode()
    if form & 2:
        encoded = encoded.rstrip("=")
    # A browser's own URL code would escape these; by hand, people do not.
    for query in (f"data={encoded}", urlencode({"data": encoded})):
        assert event(query, LimitsConfig(event_bytes=10**6, body_bytes=10**6, body_events=10)).text == text


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("data=%25%25", 400, "not_base64"),
        ("data=abcde", 400, "not_base64"),
        ("data=%C3%A9", 400, "not_base64"),
        ("data=", 400, "empty_body"),
        ("data=" + packed(b"{"), 400, "not_json"),
        ("data=" + packed(b"[{}]"), 400, "not_an_object"),
        ("data=" + packed(b"\xff"), 400, "not_json"),
        ("data=" + packed(b'{"a":' * 3000), 400, "not_json"),
        ("a=%FF", 400, "bad_query"),
        ("%ED%A0%80=1", 400, "bad_query"),
        (".".join("a" * 65) + "=1", 400, "bad_query"),
        ("a=" + "x" * 1000, 413, "event_too_large"),
    ],
)
def test_what_cannot_be_read_is_refused(query: str, status: int, code: str) -> None:
    with pytest.raises(BadBody) as caught:
        event(query, LIMITS)
    assert (caught.value.status, caught.value.code) == (status, code)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"[1]", "data is an array where an object was expected"),
        (b"7", "data is a number where an object was expected"),
        (b" ", "data is empty; send a JSON object"),
        (b"{", "data is not JSON"),
        (b"\xff", "data is not UTF-8"),
    ],
)
def test_what_is_wrong_with_data_is_said_of_data(value: bytes, message: str) -> None:
    with pytest.raises(BadBody) as caught:
        event("data=" + packed(value), LIMITS)
    assert caught.value.message.startswith(message)
    assert "body" not in caught.value.message


@given(st.text(max_size=60))
def test_no_query_makes_it_fall_over(query: str) -> None:
    with suppress(BadBody):
        json.loads(event(query.encode("utf-8", "replace").decode(), LIMITS).text)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with collector(tmp_path_factory.mktemp("pixel")) as running:
        yield running


def test_the_image_is_there_once_the_event_is(web: Running) -> None:
    query = "?data=" + packed(b'{"price":2.50,"user":{"id":1}}') + "&user.email=x&token=public"
    answer = web.http.get(f"{web.url}/api/v1/p.gif{query}", headers={"User-Agent": "Mail/1"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/gif")
    assert answer.content[:10] == b"GIF89a\x01\x00\x01\x00"
    assert answer.content.endswith(b";")
    assert "no-store" in answer.headers["cache-control"]
    record = web.records()[-1]
    assert (record.data or b"").startswith(b'{"price":2.50,"user":{"id":1,"email":"x"},"source_ip":')
    stored = json.loads(record.data or b"")
    assert stored["eventn_ctx"]["user_agent"] == "Mail/1"
    assert stored["api_key"] == "site"
    assert "token" not in stored
    assert "src" not in stored
    assert record.headers[Header.ENDPOINT] == "pixel"


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        ("", {}, 401),
        ("?token=wrong", {}, 401),
        ("?token=private", {}, 401),
        ("", {"X-Auth-Token": "public"}, 200),
        ("?token=public&data=!", {}, 400),
        ("?token=public&a=" + "x" * 60_000, {}, 413),
    ],
)
def test_a_pixel_that_is_refused_says_why_and_leaves_nothing(
    web: Running, query: str, headers: dict[str, str], status: int
) -> None:
    before = web.tail()
    answer = web.http.get(f"{web.url}/api/v1/p.gif{query}", headers=headers)
    assert answer.status_code == status
    if status != 200:
        assert answer.json()["status"] == "error"
    assert len(web.since(before)) == (status == 200)


def test_an_address_that_is_too_long_is_refused(web: Running) -> None:
    with socket.create_connection(("127.0.0.1", web.port), timeout=HANG) as connection:
        connection.sendall(b"GET /api/v1/p.gif?token=public&a=%b HTTP/1.1\r\nHost: x\r\n\r\n" % (b"x" * 70_000))
        assert connection.recv(1000).startswith(b"HTTP/1.1 414")
