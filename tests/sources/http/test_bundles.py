"""Bundles of state come in over HTTP: their data as it was sent, what describes them in headers."""

from __future__ import annotations

import gzip
import json
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping

import pytest

from penstock.conflation.kinds import Kind, Kinds
from penstock.conflation.read_bundles import read_bundles
from penstock.log.local_log import LocalLog
from penstock.record import Record
from penstock.registry import Kind as ComponentKind
from penstock.registry import components
from penstock.sources.http.body.body_events import BadBody
from penstock.sources.http.body.bundles import check_bundles, find_bundles
from penstock.sources.http.config import HttpConfig, LimitsConfig
from penstock.steps.chain import Chain
from tests.sources.http.server import CLIENT, SERVER, Running, collector

PATH = "/api/v1/bundles"
TOKENS = [
    {"id": "any", "client_secret": "public", "server_secret": "private"},
    {"id": "first", "server_secret": "of-hub1", "source": "hub1"},
]
HUB1 = {"X-Auth-Token": "of-hub1"}
ONE = {"source": "hub1", "kind": "clusters", "version": "0.7", "data": {"items": []}}


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    limits = {"bundle_bytes": "300KB", "body_bytes": "2MB", "body_events": 1000}
    with collector(tmp_path_factory.mktemp("bundles"), tokens=TOKENS, limits=limits) as running:
        yield running


def send(
    web: Running, body: object, headers: Mapping[str, str] = SERVER, **more: str
) -> tuple[dict[str, object], list[Record]]:
    """The answer to a body that is taken, and its records."""
    end = web.tail()
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = web.post(PATH, content, {**headers, **more})
    assert answer.status_code == 200, answer.text
    return answer.json(), web.since(end)


def test_a_bundle_is_kept_as_it_was_sent_and_nothing_is_added(web: Running) -> None:
    data = b'{"items":[ {"id":2.50,"n":12345678901234567890123} , 1e400 ],"items" : null, "s":"\\ud800"}'
    body = b'{ "base":"0.3","data": %b ,"kind":"clusters","depends_on":"0.2","source":"hub\\u00311","version":"1.7"}'
    answer, (record,) = send(web, body % data)
    assert answer == {"status": "ok", "accepted": 1}
    assert record.data == data
    assert record.headers == {
        "token": "any",
        "endpoint": "bundles",
        "source": "hub11",
        "kind": "clusters",
        "version": "1.7",
        "depends_on": "0.2",
        "base": "0.3",
    }
    assert (record.namespace, record.key) == ("web", '["hub11","clusters","1.7"]')


def test_only_what_a_bundle_has_becomes_a_header(web: Running) -> None:
    for members in (ONE, {**ONE, "base": None, "depends_on": None, "more": 1}):
        _, (record,) = send(web, members)
        assert record.headers.keys() == {"token", "endpoint", "source", "kind", "version"}


def test_an_array_is_taken_whole_packed_or_not(web: Running) -> None:
    many = [{**ONE, "version": f"0.{n}", "data": n} for n in range(500)]
    for body, headers in ((json.dumps(many).encode(), {}), (gzip.compress(json.dumps(many).encode()), GZIP)):
        answer, found = send(web, body, **headers)
        assert answer == {"status": "ok", "accepted": 500}
        assert [record.data for record in found] == [b"%d" % n for n in range(500)]
    assert send(web, []) == ({"status": "ok", "accepted": 0}, [])


GZIP = {"Content-Encoding": "gzip"}


def test_a_large_bundle_is_taken_although_it_is_no_small_event(web: Running) -> None:
    data = {"items": [{"id": n, "name": "x" * 30} for n in range(5000)]}
    answer, (record,) = send(web, {**ONE, "data": data})
    assert answer["accepted"] == 1
    assert json.loads(record.data or b"") == data


NO_GOOD = [
    ({"kind": "clusters", "version": "0.7", "data": 1}, "it has no source"),
    ({**ONE, "source": 7}, "its source is 7, which is no text"),
    ({**ONE, "source": ""}, "its source is ''"),
    ({**ONE, "source": "a\u001fb"}, "none of them a control character"),
    ({**ONE, "kind": None}, "kind (none) of source 'hub1': it has no kind"),
    ({**ONE, "version": "seven"}, "kind 'clusters' of source 'hub1': its version is 'seven'"),
    ({**ONE, "version": 0.7}, "its version is 0.7, which is no text; put it in quotes"),
    ({"source": "hub1", "kind": "clusters", "data": 1}, "it has no version"),
    ({**ONE, "depends_on": "0"}, "its depends_on is '0'"),
    ({**ONE, "base": [1]}, "its base is [1], which is no text"),
    ({"source": "hub1", "kind": "clusters", "version": "0.7"}, "it has no data"),
    ({}, "it has no source"),
]


@pytest.mark.parametrize(("wrong", "reason"), NO_GOOD)
def test_what_is_no_bundle_is_kept_as_failed_and_the_others_go_on(
    web: Running, wrong: Mapping[str, object], reason: str
) -> None:
    answer, found = send(web, [ONE, wrong, {**ONE, "version": "0.8"}])
    (why,) = answer.pop("reasons")  # type: ignore[misc]
    assert answer == {"status": "ok", "accepted": 2, "malformed": 1}
    assert why.startswith("bundle 1: ")
    assert reason in why
    assert [record.headers.get("version") for record in found] == ["0.7", None, "0.8"]
    assert json.loads(found[1].data or b"") == wrong, "with all its bytes"
    assert found[1].headers == {"token": "any", "endpoint": "bundles", "malformed": why}


def test_only_the_first_of_many_reasons_are_told(web: Running) -> None:
    answer, found = send(web, [{}] * 50)
    assert (answer["accepted"], answer["malformed"], len(found)) == (0, 50, 50)
    assert len(answer["reasons"]) == 10  # type: ignore[arg-type]


def test_a_token_speaks_for_its_own_source_alone(web: Running) -> None:
    answer, found = send(web, [ONE, {**ONE, "source": "hub2"}, {**ONE, "version": "0.8"}], HUB1)
    assert (answer["accepted"], answer["malformed"]) == (2, 1)
    assert answer["reasons"] == ["bundle 1: its source is 'hub2', and the token speaks for 'hub1' alone"]
    assert [record.headers.get("source") for record in found] == ["hub1", None, "hub1"]
    assert send(web, {**ONE, "source": "hub2"}, SERVER)[0] == {"status": "ok", "accepted": 1}


@pytest.mark.parametrize(
    ("body", "status", "code", "index"),
    [
        (b"", 400, "empty_body", None),
        (b"nonsense", 400, "not_json", None),
        (b"7", 400, "not_an_object", None),
        (b'"text"', 400, "not_an_object", None),
        (b"[1,2]", 400, "not_an_object", 0),
        (json.dumps([ONE, "text"]).encode(), 400, "not_an_object", 1),
        (json.dumps([ONE, [ONE]]).encode(), 400, "not_an_object", 1),
        (b"[[" + b"[" * 100_000 + b"]" * 100_000 + b"]]", 400, "not_an_object", 0),
        (b"[" * 200_000, 400, "not_json", None),
        (b'{"data":' * 30_000, 400, "not_json", None),
        (json.dumps(ONE).encode()[:-1], 400, "not_json", None),
        (b"[" + json.dumps(ONE).encode() + b",]", 400, "not_json", None),
        (b"[" + json.dumps(ONE).encode() + b"] x", 400, "not_json", None),
        (b'{"source":"hub1","kind":"clusters","version":"0.7","data":NaN}', 400, "not_json", None),
        (b'[{"source":"hub1","kind":"clusters","version":"0.7","data":-Infinity}]', 400, "not_json", None),
        (b'{"source":"hub1","data":"\xff"}', 400, "not_json", None),
        (b'{"source":"hub1","data":"\x00"}', 400, "not_json", None),
        (json.dumps([ONE, {**ONE, "data": "x" * 300_000}]).encode(), 413, "bundle_too_large", 1),
        (json.dumps({**ONE, "data": "x" * 300_000}).encode(), 413, "bundle_too_large", 0),
        (b"[" + b"{}," * 1000 + b"{}]", 413, "too_many_events", None),
        (b'"' + b"x" * 2_000_000 + b'"', 413, "body_too_large", None),
    ],
)
def test_a_bad_body_is_refused_as_a_whole_and_says_why(
    web: Running, body: bytes, status: int, code: str, index: int | None
) -> None:
    end = web.tail()
    answer = web.post(PATH, body, SERVER)
    told = answer.json()
    assert (answer.status_code, told["code"], told.get("index")) == (status, code, index)
    assert told["message"]
    assert web.since(end) == []


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 401, "no_token"),
        ({"X-Auth-Token": "nobody"}, 401, "unknown_token"),
        (CLIENT, 401, "client_token"),
    ],
)
def test_only_a_server_secret_opens_it(web: Running, headers: dict[str, str], status: int, code: str) -> None:
    end = web.tail()
    answer = web.post(PATH, json.dumps(ONE), headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert web.since(end) == []
    assert web.http.get(web.url + PATH, headers=SERVER).status_code == 405


DEEP = [
    b"[" * 200 + b"]" * 200,
    b'{"a":' * 200 + b"1.0" + b"}" * 200,
    b"[" * 100_000 + b"]" * 100_000,
    b"7" * 100_000,
    b"-1E+99999",
    b'{"a":1,"a":{"a":2,"a":3}}',
    b'"\\u0000\\ud800"',
]


@pytest.mark.parametrize("data", DEEP, ids=lambda data: data[:12].decode())
def test_odd_data_is_kept_as_it_was_sent(web: Running, data: bytes) -> None:
    text = b'{"source":"x","source":"hub1","kind":"clusters","version":"0.7","data":0,"data":%b}' % data
    for body in (text, b"\xef\xbb\xbf [ %b\n]" % text):
        _, (record,) = send(web, body)
        assert (record.data, record.headers["source"]) == (data, "hub1")


def test_what_comes_in_is_what_conflation_reads(web: Running) -> None:
    end = web.tail()
    send(web, [ONE, {**ONE, "source": "hub2", "version": "x"}, {**ONE, "kind": "unknown"}])
    log = LocalLog(web.folder / "log")
    (batch,) = [batch for partition in log.partitions() for batch in log.read(partition, end)]
    outcome = Chain([]).run(batch)
    (failed,) = outcome.failures
    assert failed.column("code").to_pylist() == ["malformed"], "every route fails it, before its first step"
    bundles, failures = read_bundles(outcome.kept, Kinds([Kind("clusters", 0)]))
    assert bundles.select(["source", "kind", "version", "data"]).to_pylist() == [
        {"source": "hub1", "kind": "clusters", "version": "0.7", "data": b'{"items": []}'}
    ]
    assert failures.column("code").to_pylist() == ["unknown_kind"]


EVENT = {"specversion": "1.0", "id": "1", "source": "hub1", "type": "clusters", "version": "0.7"}
STRUCTURED = {"Content-Type": "application/cloudevents+json; charset=UTF-8"}
BATCHED = {"Content-Type": "application/cloudevents-batch+json"}
BINARY = {f"ce-{name}": value for name, value in EVENT.items()}
EXPECTED = {"token": "any", "endpoint": "bundles", "source": "hub1", "kind": "clusters", "version": "0.7"}


@pytest.mark.parametrize(
    ("extensions", "expected"),
    [
        ({}, {}),
        ({"dependson": "0.2", "base": "0.1"}, {"depends_on": "0.2", "base": "0.1"}),
        ({"depends_on": "0.2", "bundleversion": "0.9"}, {"depends_on": "0.2"}),
    ],
)
def test_a_cloud_event_is_a_bundle_in_all_its_forms(
    web: Running, extensions: dict[str, str], expected: dict[str, str]
) -> None:
    data = b'{"items": [2.50]}'
    attributes = json.dumps({**EVENT, **extensions}).encode()
    plain = attributes[:-1] + b',"data": %b}' % data
    packed = json.dumps({**EVENT, **extensions, "data_base64": b64encode(data + b"\n").decode()}).encode()
    binary = {**BINARY, **{f"ce-{name}": value for name, value in extensions.items()}}
    for body, headers, count in (
        (plain, STRUCTURED, 1),
        (packed, STRUCTURED, 1),
        (b"[%b,%b]" % (plain, packed), BATCHED, 2),
        (b" %b\n" % data, {**binary, "Content-Type": "application/json"}, 1),
        (data, {**binary, "ce-source": "%68ub1", "ce-type": '"clust\\ers"'}, 1),
    ):
        answer, found = send(web, body, **headers)
        assert answer == {"status": "ok", "accepted": count}
        for record in found:
            assert record.data == data
            assert record.headers == {**EXPECTED, **expected}


def test_a_version_may_have_a_longer_name(web: Running) -> None:
    event = {**EVENT, "bundleversion": "1.2", "data": 1}
    del event["version"]
    _, (record,) = send(web, event, **STRUCTURED)
    assert record.headers["version"] == "1.2"


@pytest.mark.parametrize("name", ["specversion", "id", "source", "type"])
def test_what_lacks_something_that_cloud_events_require_is_refused(web: Running, name: str) -> None:
    lacking = {key: value for key, value in EVENT.items() if key != name}
    end = web.tail()
    for body, headers, index in (
        (json.dumps({**lacking, "data": 1}), STRUCTURED, 0),
        (json.dumps([{**EVENT, "data": 1}, {**lacking, name: "", "data": 1}]), BATCHED, 1),
        ("1", {key: value for key, value in BINARY.items() if key != f"ce-{name}"}, None),
    ):
        answer = web.post(PATH, body, {**SERVER, **headers})
        told = answer.json()
        assert (answer.status_code, told["code"], told.get("index")) == (400, "not_a_cloudevent", index)
        assert f"it has no {name};" in told["message"]
    assert web.since(end) == []


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        ({**EVENT, "specversion": "0.3", "data": 1}, STRUCTURED, 400, "not_a_cloudevent"),
        ([{**EVENT, "data": 1}], STRUCTURED, 400, "not_a_cloudevent"),
        ({**EVENT, "data": 1}, BATCHED, 400, "not_a_cloudevent"),
        ({**EVENT, "data": 1}, {"Content-Type": "application/cloudevents+xml"}, 415, "unknown_format"),
        (b"<xml/>", BINARY, 400, "not_json"),
        (b'"' + b"x" * 300_000 + b'"', BINARY, 413, "bundle_too_large"),
    ],
)
def test_a_cloud_event_that_cannot_be_read_is_refused(
    web: Running, body: object, headers: dict[str, str], status: int, code: str
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body)
    answer = web.post(PATH, content, {**SERVER, **headers})
    assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"data": 1, "data_base64": "MQ=="}, "both data and data_base64"),
        ({"data_base64": "!"}, "no JSON in base64"),
        ({"data_base64": b64encode(b"<xml/>").decode()}, "no JSON in base64"),
        ({"data_base64": 7}, "no JSON in base64"),
        ({"data": 1, "version": "7"}, "its version is '7'"),
        ({"data": 1, "source": "hub2"}, "the token speaks for 'hub1' alone"),
        ({}, "it has no data"),
    ],
)
def test_a_cloud_event_that_is_no_bundle_is_kept_as_failed(
    web: Running, members: dict[str, object], reason: str
) -> None:
    event = {**EVENT, **members}
    answer, found = send(web, [{**EVENT, "data": 1}, event], HUB1, **BATCHED)
    assert (answer["accepted"], answer["malformed"]) == (1, 1)
    assert reason in found[1].headers["malformed"]
    assert json.loads(found[1].data or b"") == event


def test_a_failed_event_in_headers_keeps_its_headers(web: Running) -> None:
    answer, (record,) = send(web, b"[2.50]", {**HUB1, **BINARY, "ce-source": "hub2"})
    assert answer["malformed"] == 1
    assert record.data == b"[2.50]"
    assert (record.headers["source"], record.headers["kind"]) == ("hub2", "clusters")
    assert "speaks for 'hub1' alone" in record.headers["malformed"]
    _, (empty,) = send(web, b"", BINARY | SERVER)
    assert "it has no data" in empty.headers["malformed"]


@pytest.mark.parametrize(
    ("token", "problem"),
    [
        ({"id": "a", "client_secret": "x", "source": "hub1"}, "has a source and no server_secret"),
        ({"id": "a", "server_secret": "x", "source": ""}, "1 to 256 characters"),
        ({"id": "a", "server_secret": "x", "source": "a\nb"}, "control character"),
    ],
)
def test_a_source_that_nobody_could_use_is_refused(token: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        HttpConfig.model_validate({"type": "http", "tokens": [token]})


def test_time_grows_with_the_bytes_of_a_bundle_and_not_with_their_square() -> None:
    rows = b",".join(b'{"id":%d,"name":"x","labels":["a","b"]}' % n for n in range(250_000))
    body = b'{"source":"hub1","kind":"clusters","version":"0.7","data":{"items":[%b]}}' % rows
    limits = LimitsConfig(body_bytes=48 * 2**20, bundle_bytes=48 * 2**20, body_tokens=10_000_000)
    list(check_bundles(find_bundles(b"[]", limits), None))
    began = time.process_time()
    (found,) = check_bundles(find_bundles(body, limits), None)
    assert time.process_time() - began < 20, "it takes a fraction of a second"
    assert len(found[2]) > 10_000_000
    with pytest.raises(BadBody, match="brackets"):
        list(find_bundles(body, LimitsConfig(body_tokens=1000)))


def test_what_reads_bundles_is_compiled_at_setup() -> None:
    components(ComponentKind.SOURCE)["http"].warm_up()
