"""Events that break parsers: whatever is accepted is stored as it was sent, through every face that takes JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.sources.http.server import CLIENT, SERVER, Running, collector

JS, API, BULK, TRACK = "/api/v1/event", "/api/v1/s2s/event", "/api/v1/events/bulk", "/v1/track"
MEGABYTE = b'{"type":"t","s":"' + b"x" * 1_000_000 + b'"}'

ODD = {
    "1 MB string": MEGABYTE,
    "1 MB of escapes": b'{"type":"t","s":"' + b"\\u00e9" * 170_000 + b'"}',
    "200 objects deep": b'{"type":"t","a":' + b'{"a":' * 200 + b"1.0" + b"}" * 200 + b"}",
    "200 arrays deep": b'{"type":"t","a":' + b"[" * 200 + b"]" * 200 + b"}",
    "500 levels": b'{"type":"t","a":' + b'[{"a":' * 250 + b"1.0" + b"}]" * 250 + b"}",
    "5,000 keys": b'{"type":"t",' + b",".join(b'"key%d":%d.0' % (n, n) for n in range(5000)) + b"}",
    "lone surrogates": b'{"type":"t","a":"\\ud800","\\udfff":"\\udc00\\ud800"}',
    "NUL escapes": b'{"type":"t","a":"\\u0000b","\\u0000":1}',
    "repeated keys": b'{"type":"t","a":1,"a":{"b":2,"b":3},"a":null}',
    "beyond a double": b'{"type":"t","a":1e400,"b":-1E+999,"c":1e-999}',
    "beyond int64": b'{"type":"t","a":9223372036854775808,"b":-9223372036854775809,"c":18446744073709551616}',
    "5,000 digits": b'{"type":"t","a":' + b"7" * 5000 + b"}",
    "negative zero": b'{"type":"t","a":-0,"b":-0.0,"c":0e0}',
    "empty key": b'{"type":"t","":"","":{"":[]}}',
    "odd escapes": b'{"type":"t","a":"\\/\\b\\f\\n\\r\\t\\u0041","\\u0061\\"\\\\":1}',
    "raw characters": '{"type":"t","ключ":"\u2028\u2029\ufeff\x7f😀"}'.encode(),
    "blanks inside": b'{"type" : "t" ,\t"a":\t[ 1 , 2 ]}',
    "our names inside": b'{"type":"t","x":{"source_ip":1,"_timestamp":2,"api_key":3,"eventn_ctx":{}}}',
}


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with collector(tmp_path_factory.mktemp("odd"), limits={"event_bytes": "3MB"}) as running:
        yield running


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with collector(tmp_path_factory.mktemp("usual")) as running:
        yield running


@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b" \r\n\t"], ids=["bare", "BOM", "blanks"])
@pytest.mark.parametrize("event", ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize("path", [JS, API, BULK, TRACK])
def test_an_odd_event_is_stored_as_it_was_sent(web: Running, path: str, event: bytes, before: bytes) -> None:
    end = web.tail()
    answer = web.post(path, before + event + b"\n", SERVER if path == API else CLIENT)
    assert (answer.status_code, answer.json()["accepted"]) == (200, 1)
    (record,) = web.since(end)
    stored = record.data or b""
    assert stored.startswith(event[:-1] + b',"source_ip":"127.0.0.1","_timestamp":"')
    added = json.loads(b"{" + stored[len(event) :])
    assert added.keys() - {"src"} == {"source_ip", "_timestamp", "api_key", "eventn_ctx"}


def test_odd_events_in_an_array_and_under_a_template(web: Running) -> None:
    end = web.tail()
    assert web.post(JS, b"[" + b" , ".join(ODD.values()) + b"]").json()["accepted"] == len(ODD)
    body = b'{"template":{"extra":2.50},"events":[' + b",".join(ODD.values()) + b"]}"
    assert web.post(JS, body).json()["accepted"] == len(ODD)
    stored = [record.data or b"" for record in web.since(end)]
    for event, plain, filled in zip(ODD.values(), stored[: len(ODD)], stored[len(ODD) :], strict=True):
        assert plain.startswith(event[:-1] + b',"source_ip"')
        assert filled.startswith(event[:-1] + b',"extra":2.50,"source_ip"')


@pytest.mark.parametrize("path", [JS, API, TRACK])
def test_a_large_event_is_refused_unless_the_limit_is_raised(usual: Running, path: str) -> None:
    answer = usual.post(path, MEGABYTE, SERVER if path == API else CLIENT)
    assert (answer.status_code, answer.json()["code"], answer.json()["index"]) == (413, "event_too_large", 0)
    assert usual.records() == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":"\x00"}',
        b'{"a":1}\x00',
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        '{"a":1}'.encode("utf-16"),
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":01}',
        b"{'a':1}",
        b'{"a":1,}',
        b'{"a":"\\x41"}',
        b'{"a":"\\ud8"}',
        b'{"a":' * 5000,
        b"[" * 50_000 + b"]" * 50_000,
        b'\xef\xbb\xbf\xef\xbb\xbf{"a":1}',
    ],
)
@pytest.mark.parametrize("path", [JS, TRACK])
def test_what_is_not_json_is_refused_with_a_reason(web: Running, path: str, body: bytes) -> None:
    answer = web.post(path, body)
    assert (answer.status_code, answer.json()["code"]) == (400, "not_json")
