"""From events of the log to requests of the addEvents API, without a server."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import uuid
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from penstock.destinations.contract import NULL_TABLE_BOOK, Batch
from penstock.destinations.dataset.config import DatasetConfig
from penstock.destinations.dataset.destination import DatasetDestination
from penstock.destinations.dataset.event_mapping import BrokenRule, EventMapper, nanoseconds
from penstock.destinations.sending.staged.keyed_rows import KeyedRows
from penstock.sessions.trim import TRIMMED
from penstock.testing.destination import Staging, events
from tests.simulators.dataset import problem

BASIC = {"url": "http://127.0.0.1:1", "token": "token", "server_host": "host"}


def mapped(event: Any, micros: int = 1_000_000, **options: Any) -> dict[str, Any]:
    mapper = EventMapper(options.pop("group_by", ()), "default", most=100_000, **options)
    found = mapper.map_event(json.dumps(event).encode(), micros, (0, 5, 0))
    return {
        **json.loads(found.body),
        "info": json.loads(found.session_info),
        "threads": found.thread and json.loads(found.thread),
        "logs": found.log and json.loads(found.log),
    }


@pytest.mark.parametrize(
    ("event", "part", "expected"),
    [
        ({"sev": 0}, "sev", 0), ({"sev": 6}, "sev", 6), ({"sev": 7}, "sev", 3), ({"sev": -1}, "sev", 3),
        ({"severity": 4}, "sev", 4), ({"severity": "WARN"}, "sev", 4), ({"severity": "5"}, "sev", 5),
        ({"sev": 1, "severity": 4}, "sev", 1), ({"sev": True}, "sev", 3), ({"sev": "x"}, "attrs", {"sev": "x"}),
        ({}, "sev", 3),
        ({}, "ts", "1000000000"), ({"_timestamp": "1970-01-01T00:00:02Z"}, "ts", "2000000000"),
        ({"_timestamp": "2026-01-31T09:11:06.123456789+01:00"}, "ts", "1769847066123456789"),
        ({"_timestamp": "yesterday"}, "attrs", {"_timestamp": "yesterday"}),
        ({"a": {"b": {"c": 1}, "d": 2}}, "attrs", {"a.b.c": 1, "a.d": 2}),
        ({"a.b": 1, "a": {"b": 2}}, "attrs", {"a.b": 1, "a.b_": 2}),
        ({"a": [1, {"b": 2}], "e": {}}, "attrs", {"a": [1, {"b": 2}], "e": {}}),
        ({"thread": "t1"}, "thread", "t1"), ({"thread": "t1"}, "threads", {"id": "t1", "name": "t1"}),
        ({"thread": {"id": "t1", "name": "main"}}, "threads", {"id": "t1", "name": "main"}),
        ({"thread": True}, "attrs", {"thread": True}),
        ({"logfile": "/x"}, "log", "/x"), ({"logfile": "/x"}, "info", {"serverHost": "default", "logfile": "/x"}),
        ({"log": {"id": "l", "attrs": {"a": {"b": 1}}}}, "logs", {"id": "l", "attrs": {"a.b": 1}}),
        ({"serverHost": "own"}, "info", {"serverHost": "own"}),
        ({"__origServerHost": "o"}, "info", {"serverHost": "o"}),
        ({}, "info", {"serverHost": "default"}), ({"serverHost": "own"}, "attrs", {}),
        ({"ts": "12", "attrs": {"a": 1}, "sev": 5}, "attrs", {"a": 1}),
        ({"ts": "12", "attrs": {"a": 1}, "sev": 5}, "ts", "12"), ({"ts": "12", "attrs": {}, "sev": 5}, "sev", 5),
        ({"ts": "x", "attrs": {"a": 1}}, "attrs", {"ts": "x", "attrs.a": 1}),
        ({"ts": "12", "attrs": {"a": 1}, "a": 2, "b": {"c": 3}}, "attrs", {"a": 1, "b.c": 3}),
        ({"_timestamp": "1969-12-31T23:59:59Z"}, "ts", "1000000000"),
        ({"_timestamp": "1969-12-31T23:59:59Z"}, "attrs", {"_timestamp": "1969-12-31T23:59:59Z"}),
        ({"_timestamp": "2262-04-11T23:47:16.854775807Z"}, "ts", "9223372036854775807"),
        ({"_timestamp": "2262-04-11T23:47:16.854775808Z"}, "ts", "1000000000"),
        ({"_timestamp": "9999-01-01T00:00:00Z"}, "ts", "1000000000"),
        ({"ts": "9223372036854775807", "attrs": {}}, "ts", "9223372036854775807"),
        ({"ts": "18446744073709551615", "attrs": {}}, "ts", "1000000000"),
        ({"ts": "18446744073709551615", "attrs": {}}, "attrs", {"ts": "18446744073709551615"}),
        ({"ts": "١٢", "attrs": {"a": 1}}, "ts", "1000000000"),
        ({"log": {"id": "l", "attrs": [1]}}, "logs", {"id": "l", "attrs": {"value": [1]}}),
        ({"log": {"id": "l", "attrs": None}}, "logs", {"id": "l", "attrs": {}}),
        ({"thread": {"id": 7, "name": 8}}, "threads", {"id": "7", "name": "8"}),
        ({"thread": {"id": "t", "name": {"a": [1]}}}, "threads", {"id": "t", "name": '{"a":[1]}'}),
        ({"thread": {"id": "t", "name": None}}, "threads", {"id": "t", "name": "t"}),
        ({"thread": 1234567890123456789}, "thread", "1234567890123456789"),
        ({"thread": {"id": 1234567890123456789}}, "thread", "1234567890123456789"),
        ({"serverHost": 123456789012345678901}, "info", {"serverHost": "123456789012345678901"}),
        ({"serverHost": True}, "info", {"serverHost": "true"}), ({"serverHost": ""}, "info", {"serverHost": "default"}),
    ],
)  # fmt: skip
def test_an_event_of_the_log_becomes_one_of_the_api(event: Any, part: str, expected: Any) -> None:
    assert mapped(event)[part] == expected


@pytest.mark.parametrize(
    "number",
    ["1", "1.5", "-0.1", "9223372036854775807", "18446744073709551616", "123456789012345678901234567890",
     "12345678901234567.89", "0.12345678901234567891", "-1234567890.1234567891"],
)  # fmt: skip
def test_numbers_keep_their_digits(number: str) -> None:
    mapper = EventMapper((), "default", most=100_000)
    found = mapper.map_event(f'{{"n": [{number}], "m": {number}}}'.encode(), 0, (0, 5, 0))
    attributes = json.loads(found.body, parse_float=str, parse_int=str)["attrs"]
    assert attributes == {"n": [number], "m": number}


def test_half_a_character_does_not_cost_the_digits_of_a_number() -> None:
    mapper = EventMapper((), "default", most=100_000)
    found = mapper.map_event(b'{"t": "\\ud800", "n": 12345678901234567.89}', 0, (0, 5, 0))
    assert b"12345678901234567.89" in found.body


def test_events_with_different_long_numbers_are_of_different_sessions() -> None:
    mapper = EventMapper(("n",), "default", most=100_000)
    keys = {mapper.map_event(f'{{"n": 1234567890123456789{end}}}'.encode(), 0, (0, 5, 0)).key for end in range(5)}
    assert len(keys) == 5


def test_grouped_fields_move_to_the_session() -> None:
    found = mapped({"service": "s", "k8s": {"pod": "p"}, "n": 1}, group_by=("service", "k8s.pod"))
    assert found["info"] == {"serverHost": "default", "service": "s", "k8s.pod": "p"}
    assert found["attrs"] == {"n": 1}


def test_values_that_python_takes_for_the_same_are_sessions_of_their_own() -> None:
    mapper = EventMapper(("a",), "host", most=1_000)
    values = [1, True, 1.0, "1", "true", None]
    keys = [mapper.map_event(json.dumps({"a": value}).encode(), 0, (0, 0, 0)).key for value in values]
    assert [keys.index(key) for key in keys] == [0, 1, 2, 0, 1, 5]


DEEP = 260


@pytest.mark.parametrize("data", [b"[1]", b"x", b'"a"', b"1", b'{"a":', b'{"a":' + b"[" * DEEP + b"]" * DEEP + b"}"])
def test_what_is_no_object_is_no_event(data: bytes) -> None:
    with pytest.raises(BrokenRule):
        EventMapper((), "host", most=1_000).map_event(data, 0, (0, 0, 0))


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":' + b"[" * 300 + b"]" * 300 + b"}",
        b'{"a":' + b"[" * 1_000 + b"]" * 1_000 + b"}",
        b'{"a":' * 1_010 + b"1" + b"}" * 1_010,
        b'{"log": {"id": "x", "attrs": {"a": ' + b"[" * 300 + b"]" * 300 + b"}}}",
    ],
)
def test_what_is_nested_too_deep_fails_and_nothing_else_does(data: bytes, tmp_path: Path) -> None:
    staging = Staging(DatasetDestination(DatasetConfig.model_validate(BASIC)), tmp_path)
    (part,) = staging.stage([*events({"n": 1}), data, *events({"n": 2})])
    assert part.rows == 2
    (failed,) = staging.outcomes[0].failures.to_pylist()
    assert (failed["code"], failed["message"]) == ("bad_event", "its values are nested too deep to be written as JSON")


def test_a_long_name_is_not_multiplied_by_what_is_in_it() -> None:
    data = json.dumps({"x" * 100_000: {f"n{number}": number for number in range(5_000)}}).encode()
    mapper = EventMapper((), "default", most=6_000_000)
    tracemalloc.start()
    with pytest.raises(BrokenRule, match="names of its attributes alone"):
        mapper.map_event(data, 0, (0, 5, 0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000


def test_half_a_character_does_not_cost_the_event() -> None:
    event = EventMapper((), "host", most=1_000).map_event(b'{"a": "x\\ud800y"}', 0, (0, 0, 0))
    assert json.loads(event.body)["attrs"] == {"a": "x?y"}


@pytest.mark.parametrize("text", ["", "x", "2026-13-01T00:00:00Z", "12:00"])
def test_a_text_that_is_no_time_is_none(text: str) -> None:
    assert nanoseconds(text) is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"token": " "}, "the token is empty"),
        ({"url": "127.0.0.1:9000"}, "not an address"),
        ({"url": "http://u:p@h"}, "a password"),
        ({"max_size": 6_225_921}, "less than or equal"),
        ({"max_size": 10}, "greater than or equal"),
        ({"max_parallel_outgoing": 0}, "greater than or equal"),
        ({"compression_level": 9}, "none of gzip"),
        ({"group_by": ["a", "a"]}, "named twice"),
        ({"retry": {"initial": "60s"}}, "max is shorter than initial"),
    ],
)
def test_a_wrong_option_is_refused_at_start(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        DatasetConfig.model_validate({**BASIC, **options})


def test_the_token_must_be_there() -> None:
    with pytest.raises(ValidationError, match="token"):
        DatasetConfig.model_validate({"url": "http://x"})


TEXT = st.text(max_size=60) | st.text(alphabet='"\\\n\u0001\u20acx', min_size=500, max_size=900)
EVENTS = st.fixed_dictionaries(
    {"s": st.sampled_from("abc"), "text": TEXT},
    optional={"thread": st.sampled_from(["t1", "t2"]), "sev": st.integers(0, 6), "more": st.text(max_size=9)},
)


@given(st.lists(EVENTS, min_size=1, max_size=40), st.integers(1_100, 3_000))
@settings(max_examples=60)
def test_requests_are_valid_in_order_under_the_limit_and_have_all_events(values: list[Any], most: int) -> None:
    options = {**BASIC, "group_by": ["s"], "max_size": most}
    destination = DatasetDestination(DatasetConfig.model_validate(options))
    with TemporaryDirectory() as folder:
        staging = Staging(destination, Path(folder) / uuid.uuid4().hex)
        numbered = [{**value, "n": number} for number, value in enumerate(values)]
        parts = staging.stage(events(*numbered[:20])) + staging.stage(events(*numbered[20:]), first=20)
        assert sum(outcome.failures.num_rows for outcome in staging.outcomes) == 0
        staged = KeyedRows.load(parts, None)
        protocol = destination.protocol(Batch("scope", "route", 1, {}), staged, NULL_TABLE_BOOK)
        sent: dict[str, list[Any]] = {}
        for key, rows in staged.keys.items():
            start = 0
            while start < len(rows):
                end = protocol.cut(key, start)
                request = protocol.build(key, start, end)
                body = gzip.decompress(request.body)
                assert len(body) == request.payload_bytes <= most
                document = json.loads(body)
                assert problem(document) is None
                sent.setdefault(document["sessionInfo"]["s"], []).extend(document["events"])
                start = end
    for session, found in sent.items():
        own = [value for value in numbered if value["s"] == session]
        assert [event["attrs"]["n"] for event in found] == [value["n"] for value in own]
        for event, value in zip(found, own, strict=True):
            is_whole = event["attrs"]["text"] == value["text"]
            assert is_whole or "text" in event["attrs"][TRIMMED]
            assert value["text"].startswith(event["attrs"]["text"])
    assert sum(map(len, sent.values())) == len(values)
