"""Context goes into an event without disturbing any other byte of it."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sources.http.intake.enrich import Clock, Context, context, enriched, event_id
from penstock.sources.json_text import parse
from tests.sources.test_jsontext import STYLES, VALUES, text_of

JS = context("2001:db8::1", "2024-05-01T10:00:00.000001Z", "site", 'Agent "x"/1', api=False)
API = context("192.0.2.7", "2024-05-01T10:00:00.000001Z", "site", None, api=True)


NO_ID: tuple[object, ...] = (None, "")
"""What an event may have in place of an id."""


def enrich(event: bytes, added: Context = JS) -> bytes:
    value = parse(event)
    assert isinstance(value, dict)
    return enriched(event, value, added)


def expected(value: dict[str, object], added: Context) -> dict[str, object]:
    """The slow reference: what the rules say about the parsed event."""
    result = {**value, **json.loads(b"{" + added.top + b"}")}
    agent = json.loads(added.user_agent) if added.user_agent is not None else None
    inner = value.get("eventn_ctx")
    merged = dict(inner) if isinstance(inner, dict) else {} if inner is None else {"_value": inner}
    if merged.get("event_id") in NO_ID:
        merged["event_id"] = "*"
    if agent is not None:
        merged.setdefault("user_agent", agent)
    result["eventn_ctx"] = merged
    return result


def without_new_id(text: bytes, before: dict[str, object]) -> dict[str, object]:
    """The enriched event, its generated id (checked to be a UUID) replaced by a star."""
    value: dict[str, object] = json.loads(text)
    inner, old = value["eventn_ctx"], before.get("eventn_ctx")
    assert isinstance(inner, dict)
    if not isinstance(old, dict) or old.get("event_id") in NO_ID:
        UUID(str(inner["event_id"]))
        inner["event_id"] = "*"
    return value


NAMES = st.sampled_from(
    ["a", "eventn_ctx", "source_ip", "_timestamp", "api_key", "src", "eventn_ctx_event_id", "eventn_ctx_user_agent"]
)
CONTEXTS = st.dictionaries(
    st.sampled_from(["event_id", "user_agent", "eventn_ctx", "b"]), VALUES | st.just(""), max_size=4
)
EVENTS = st.dictionaries(NAMES | st.text(max_size=3), VALUES | CONTEXTS, max_size=6)


@given(EVENTS, STYLES, st.booleans(), st.sampled_from([JS, API]))
def test_the_result_is_the_event_merged_with_its_context(
    value: dict[str, object], style: tuple[str, str], ascii_only: bool, added: Context
) -> None:
    text = enrich(text_of(value, style, ascii_only), added)
    assert without_new_id(text, value) == expected(value, added)
    keys = [key for key, _ in json.loads(text, object_pairs_hook=list)]
    assert len(keys) == len(set(keys)), "no key may be there twice"


@pytest.mark.parametrize(
    "piece",
    [
        b'"p":2.50',
        b'"p":1e400',
        b'"p":12345678901234567890123',
        b'"p":-0.0',
        b'"p":"\\ud800"',
        b'"p":"\\u00e9\\/"',
        b'"z":1,"a":2,"m":3',
        b'"p":1,"p":2',
        b'"p" : [ 1,\t2 ]',
        b'"eventn_ctx":{"event_id":"mine","user_agent":"me"}',
    ],
)
@pytest.mark.parametrize("replaced", [b"", b'"source_ip":"1.1.1.1",'])
def test_bytes_of_the_event_stay_as_they_were_sent(piece: bytes, replaced: bytes) -> None:
    assert piece in enrich(b"{" + replaced + piece + b"}")
    assert piece in enrich(b'{"eventn_ctx":{' + piece + b"}}")


@pytest.mark.parametrize(
    "event",
    [
        b'{"\\u0065ventn_ctx":{"a":1},"b":"eventn_ctx"}',
        b'{"b":{"eventn_ctx":{}},"eventn_ctx":{"a":1}}',
        b'{"eventn_ctx":{"a":0},"eventn_ctx":{"a":1}}',
        b'{"b":"\\"eventn_ctx\\":{","eventn_ctx" : { "a":1}}',
    ],
)
def test_a_context_that_is_hard_to_find_is_found(event: bytes) -> None:
    inner = json.loads(enrich(event))["eventn_ctx"]
    assert inner["a"] == 1
    assert UUID(inner["event_id"])
    assert inner["user_agent"] == 'Agent "x"/1'


@pytest.mark.parametrize(
    ("event", "displaced"),
    [
        (b'{"eventn_ctx":5.10,"a":1}', b'"_value":5.10'),
        (b'{"eventn_ctx" : "x" }', b'"_value":"x"'),
        (b'{"eventn_ctx":[{"event_id":"no"}]}', b'"_value":[{"event_id":"no"}]'),
        (b'{"eventn_ctx":false,"eventn_ctx_event_id":"theirs"}', b'"_value":false'),
        (b'{"eventn_ctx":{},"eventn_ctx":1e400}', b'"_value":1e400'),
    ],
)
def test_a_context_that_is_no_object_is_kept_beside_the_id(event: bytes, displaced: bytes) -> None:
    text = enrich(event)
    assert displaced in text
    result = json.loads(text)
    assert UUID(result["eventn_ctx"]["event_id"])
    assert result["eventn_ctx"]["user_agent"] == 'Agent "x"/1'
    # A field whose name flattening would also give to the id is left alone; flattening settles that, and counts it.
    assert result.get("eventn_ctx_event_id") == json.loads(event).get("eventn_ctx_event_id")


@pytest.mark.parametrize(
    ("event", "expected_id"),
    [
        (b"{}", "own"),
        (b'{"eventn_ctx":{"a":1}}', "own"),
        (b'{"eventn_ctx":{"event_id":null}}', "own"),
        (b'{"eventn_ctx":{"event_id":""}}', "own"),
        (b'{"eventn_ctx":{"b":1,"event_id":"","event_id":""}}', "own"),
        (b'{"eventn_ctx":{"event_id":"","event_id":"brought"}}', "brought"),
        (b'{"eventn_ctx":{"event_id":" "}}', " "),
        (b'{"eventn_ctx":{"event_id":0}}', 0),
        (b'{"eventn_ctx":{"event_id":false}}', False),
        (b'{"eventn_ctx":{"event_id":{}}}', {}),
        (b'{"eventn_ctx":{"event_id":"brought"}}', "brought"),
        (b'{"eventn_ctx":7}', "own"),
    ],
)
def test_an_id_of_another_kind_stands_in_for_a_random_one(event: bytes, expected_id: object) -> None:
    value = json.loads(event)
    result = enriched(event, value, JS, "own")
    assert json.loads(result)["eventn_ctx"]["event_id"] == expected_id
    assert expected_id != "own" or result.count(b'"event_id"') == 1


def test_an_id_of_any_characters_can_be_written() -> None:
    odd = 'a"\\\ud800\x00é'
    assert json.loads(enriched(b"{}", {}, API, odd))["eventn_ctx"]["event_id"] == odd


def test_what_the_server_knows_replaces_what_the_client_claims() -> None:
    claimed = b'{"source_ip":"6.6.6.6","_timestamp":"1970","api_key":"stolen","src":"web","x":1}'
    api, js = json.loads(enrich(claimed, API)), json.loads(enrich(claimed, JS))
    assert (api["source_ip"], api["api_key"], api["src"]) == ("192.0.2.7", "site", "api")
    assert (js["source_ip"], js["src"]) == ("2001:db8::1", "web")
    assert api["_timestamp"] == "2024-05-01T10:00:00.000001Z"
    assert b"6.6.6.6" not in enrich(claimed, JS)


def test_ids_are_different_uuids() -> None:
    made = {event_id() for _ in range(500)}
    assert len(made) == 500
    assert {(UUID(text).version, UUID(text).variant) for text in made} == {(4, "specified in RFC 4122")}


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (1_714_557_600_000_001, "2024-05-01T10:00:00.000001Z"),
        (1_714_557_600_999_999, "2024-05-01T10:00:00.999999Z"),
    ],
)
def test_times_are_utc_with_six_digits(micros: int, text: str) -> None:
    assert Clock().text(micros) == text
