"""From a body to its events: whole or not at all, except for NDJSON, where every line is on its own."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.sources.http.body import body_events
from penstock.sources.http.body.body_events import (
    BadBody,
    Event,
    Malformed,
    lines,
    parsed_events,
    walked_events,
)
from penstock.sources.http.config import LimitsConfig
from penstock.sources.json_text import NotJson, parse
from tests.sources.test_jsontext import STYLES, VALUES, text_of

LIMITS = LimitsConfig(event_bytes=100, body_bytes=2000, body_events=10)


def events(body: bytes, limits: LimitsConfig) -> list[Event]:
    return list(body_events.events(body, limits))


def texts(body: bytes) -> list[bytes]:
    return [event.text for event in events(body, LIMITS)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a":2.50}', [b'{"a":2.50}']),
        (b' \r\n\t{"a":1} \n', [b'{"a":1}']),
        (b'\xef\xbb\xbf{"a":1}', [b'{"a":1}']),
        (b"{}", [b"{}"]),
        (b"[]", []),
        (b'[{"a":1.0} , { "b" : 2 }]', [b'{"a":1.0}', b'{ "b" : 2 }']),
        ('[{"é":"ü"},{"a":"\\ud800"}]'.encode(), ['{"é":"ü"}'.encode(), b'{"a":"\\ud800"}']),
        (b'{"template":{"a":1.0},"events":[{"b":2},{"a":3}]}', [b'{"b":2,"a":1.0}', b'{"a":3}']),
        (
            b'{"template":{"o":{"x":1,"y":{"z":1}}},"events":[{"o":{"y":{"w":0}}},{"o":null}]}',
            [b'{"o":{"y":{"w":0,"z":1},"x":1}}', b'{"o":null}'],
        ),
        (b'{"template":{"a":1},"events":[]}', []),
        (b'{"template":"t","events":[1]}', [b'{"template":"t","events":[1]}']),
        (b'{"template":{},"events":[],"more":1}', [b'{"template":{},"events":[],"more":1}']),
    ],
)
def test_events_are_found_byte_for_byte(body: bytes, expected: list[bytes]) -> None:
    assert texts(body) == expected


@pytest.mark.parametrize(
    ("body", "status", "code", "index"),
    [
        (b"", 400, "empty_body", None),
        (b" \n\xef\xbb\xbf"[:2], 400, "empty_body", None),
        (b"nonsense", 400, "not_json", None),
        (b"7", 400, "not_an_object", None),
        (b"null", 400, "not_an_object", None),
        (b'"text"', 400, "not_an_object", None),
        (b'[{"a":1},7]', 400, "not_an_object", 1),
        (b'[{"a":1},[{}]]', 400, "not_an_object", 1),
        (b'{"a":"' + b"x" * 100 + b'"}', 413, "event_too_large", 0),
        (b'[{"a":1},{"a":"' + b"x" * 100 + b'"}]', 413, "event_too_large", 1),
        (b"[" + b"{}," * 10 + b"{}]", 413, "too_many_events", None),
        (b'{"template":{"t":"' + b"x" * 90 + b'"},"events":[{"a":1234}]}', 413, "event_too_large", 0),
        (b"[" * 100_000, 400, "not_json", None),
        (b"[" + b"[" * 5000 + b"]" * 5000 + b"]", 400, "not_json", None),
    ],
)
def test_a_bad_body_is_refused_and_the_event_named(body: bytes, status: int, code: str, index: int | None) -> None:
    with pytest.raises(BadBody) as caught:
        events(body, LIMITS)
    assert (caught.value.status, caught.value.code, caught.value.index) == (status, code, index)


def test_a_template_cannot_blow_a_small_body_up() -> None:
    body = b'{"template":{"t":"' + b"x" * 80 + b'"},"events":[' + b"{}," * 9 + b"{}]}"
    with pytest.raises(BadBody) as caught:
        events(body, LimitsConfig(event_bytes=100, body_bytes=500, body_events=10))
    assert caught.value.status == 413


@pytest.mark.parametrize("depth", [200, 900])
def test_deep_nesting_is_fine(depth: int) -> None:
    body = b'{"a":' + b"[" * depth + b"]" * depth + b"}"
    roomy = LimitsConfig(event_bytes=10_000, body_bytes=10_000, body_events=10)
    assert [event.text for event in events(body, roomy)] == [body]
    assert [event.text for event in events(b"[" + body + b"]", roomy)] == [body]


OBJECTS = st.dictionaries(st.text(max_size=3), VALUES, max_size=3)
SMALL = st.dictionaries(st.sampled_from("abc"), st.integers() | st.dictionaries(st.sampled_from("abc"), st.integers()))


def test_a_template_of_repeated_keys_is_refused_by_its_own_size() -> None:
    body = b'{"template":{' + b'"a":1,' * 99 + b'"a":1},"events":[{}]}'
    with pytest.raises(BadBody) as caught:
        events(body, LimitsConfig(event_bytes=100, body_bytes=100_000, body_events=10))
    assert (caught.value.status, caught.value.code) == (413, "template_too_large")


def test_too_many_lines_are_refused_before_one_is_read() -> None:
    with pytest.raises(BadBody) as caught:
        next(lines(b"{}\n" * 11, LimitsConfig(event_bytes=100, body_bytes=100_000, body_events=10)))
    assert caught.value.status == 413
    assert (
        len(list(lines(b"{}\n" * 10 + b"\n" * 50, LimitsConfig(event_bytes=100, body_bytes=100_000, body_events=10))))
        == 10
    )


def filled(event: dict[str, object], template: dict[str, object]) -> dict[str, object]:
    result = dict(event)
    for key, theirs in template.items():
        mine = result.get(key)
        if key not in result:
            result[key] = theirs
        elif isinstance(mine, dict) and isinstance(theirs, dict):
            result[key] = filled(mine, theirs)
    return result


@given(SMALL, st.lists(SMALL, max_size=3), STYLES)
def test_a_template_fills_what_events_lack(
    template: dict[str, object], given_events: list[dict[str, object]], style: tuple[str, str]
) -> None:
    body = text_of({"template": template, "events": given_events}, style, True)
    found = events(body, LimitsConfig(event_bytes=10**6, body_bytes=10**6, body_events=100))
    assert [json.loads(event.text) for event in found] == [filled(event, template) for event in given_events]
    assert [event.value for event in found] == [parse(event.text) for event in found]


@given(st.lists(OBJECTS, max_size=5), STYLES, st.booleans())
def test_arrays_give_their_elements(values: list[dict[str, object]], style: tuple[str, str], ascii_only: bool) -> None:
    found = events(
        text_of(values, style, ascii_only), LimitsConfig(event_bytes=10**6, body_bytes=10**6, body_events=100)
    )
    assert [json.loads(event.text) for event in found] == values


def test_lines_stand_alone() -> None:
    body = b'\xef\xbb\xbf{"a":1.0}\r\n\n  \n{"b":\n7\n' + b'{"c":"' + b"x" * 100 + b'"}\n{"d":"\xff"}\n{"e":1e400}'
    found = list(lines(body, LIMITS))
    assert [item.text for item in found if isinstance(item, Event)] == [b'{"a":1.0}', b'{"e":1e400}']
    bad = [item for item in found if isinstance(item, Malformed)]
    assert [item.raw for item in bad] == [b'{"b":', b"7", b'{"c":"' + b"x" * 100 + b'"}', b'{"d":"\xff"}']
    assert [item.reason.partition(":")[0] for item in bad] == ["line 4", "line 5", "line 6", "line 7"]


@pytest.mark.parametrize(
    ("body", "raw"),
    [
        (b' \t{"a": \n', b' \t{"a": '),
        (b'{"a":\r\n', b'{"a":'),
        (b'{"a": \r\r\n{}', b'{"a": \r'),
        (b'{"a":\r', b'{"a":\r'),
        (b"\xef\xbb\xbf[1]\n", b"\xef\xbb\xbf[1]"),
        (b"\x0b\x0c\n", b"\x0b\x0c"),
        (b"\x00\n", b"\x00"),
    ],
)
def test_a_malformed_line_loses_only_its_end(body: bytes, raw: bytes) -> None:
    assert [item.raw for item in lines(body, LIMITS) if isinstance(item, Malformed)] == [raw]


@pytest.mark.parametrize("body", [b"", b"\n", b" \r\n\t\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n \n"])
def test_no_line_at_all_is_an_empty_body(body: bytes) -> None:
    with pytest.raises(BadBody) as caught:
        list(lines(body, LIMITS))
    assert (caught.value.status, caught.value.code) == (400, "empty_body")


def test_too_many_lines_are_refused_as_a_whole() -> None:
    with pytest.raises(BadBody, match="more than 10"):
        list(lines(b"{}\n" * 11, LIMITS))
    assert len(list(lines(b"{}\n\n" * 10, LIMITS))) == 10


DOCUMENTS = st.lists(OBJECTS | SMALL, max_size=5) | st.fixed_dictionaries(
    {"template": SMALL, "events": st.lists(OBJECTS | SMALL, max_size=4)}
)
DAMAGE = st.none() | st.tuples(st.integers(0, 200), st.sampled_from([b"", b",", b"]", b"}", b'"', b"[", b"\xff", b"x"]))


def shape(value: object) -> object:
    """The value without its numbers: those are read from the text, and parsed only where that costs nothing."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return True if isinstance(value, int | float) else value


@given(DOCUMENTS, STYLES, st.booleans(), DAMAGE, st.integers(40, 300))
@example(
    document=[{"a": 0, "𐀀": None}, {"b": 420}], style=(",", ":"), ascii_only=True, damage=(9, b""), window=40
)  # half of a character in one event, and numbers in another
@example(
    document={"events": [{}], "template": {"a": {"a": 0}}},
    style=(", ", ": "),
    ascii_only=False,
    damage=(37, b"\xff"),
    window=40,
)  # a key inside the template that is no text
def test_a_large_body_is_read_as_a_small_one_is(
    document: object, style: tuple[str, str], ascii_only: bool, damage: tuple[int, bytes] | None, window: int
) -> None:
    text = text_of(document, style, ascii_only)  # type: ignore[arg-type]
    if damage is not None:
        text = text[: damage[0]] + damage[1] + text[damage[0] + 1 :]
    text = text.strip()
    limits = LimitsConfig(event_bytes=200, body_bytes=1000, body_events=4)

    def small_events(text: bytes, limits: LimitsConfig) -> Iterator[Event]:
        yield from parsed_events(text, parse(text), limits)

    def outcome(found: Iterator[Event]) -> list[tuple[bytes, object]] | int:
        try:
            return [(event.text, shape(event.value)) for event in found]
        except NotJson:
            return 400
        except BadBody as error:
            return error.status

    small = outcome(small_events(text, limits)) if text else 400
    if isinstance(small, list) and text[:1] == b"{" and len(small) == 1 and small[0][0] == text:
        return  # a plain event; only those that are too large are walked over
    large = outcome(walked_events(text, limits, window)) if text else 400
    # What is both too large and no JSON may be refused for either.
    assert large == small or sorted([large, small]) == [400, 413]


@pytest.mark.parametrize("key", [b"\xff", b"\xe4vents", b"templat\xc3"])
def test_a_large_body_with_a_key_that_is_no_text_is_refused_with_its_place(key: bytes) -> None:
    body = b'{"' + key + b'":{},"events":[' + b",".join([b'{"n":1}'] * 40_000) + b"]}"
    with pytest.raises(BadBody, match=r"not UTF-8 at byte \d") as caught:
        list(events(body, LimitsConfig(event_bytes=51_200, body_bytes=10_000_000, body_events=100_000)))
    assert caught.value.status == 400


def test_work_grows_with_the_bytes_and_not_with_the_depth_or_the_template() -> None:
    """Each of these took minutes, or half an hour."""
    roomy = LimitsConfig(event_bytes=51_200, body_bytes=10_000_000, body_events=100_000)
    repeated = b'{"a":{' + b",".join([b'"k":1'] * 8000) + b"}}"
    deep = b'{"a":' * 60 + b"{" + b",".join(b'"k%d":1' % n for n in range(4000)) + b"}" + b"}" * 60
    for template, one, count in ((repeated, b'{"a":{}}', 20_000), (deep, deep, 100), (deep, b'{"a":{}}', 100)):
        body = b'{"template":' + template + b',"events":[' + b",".join([one] * count) + b"]}"
        began = time.process_time()
        assert len(events(body, roomy)) == count
        assert time.process_time() - began < 30


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b",".join([b'{"a":[' + b",".join([b"1"] * 100) + b"]}"] * 20) + b"]",
        b'{"template":{"a":[' + b",".join([b"1"] * 100) + b']},"events":[' + b",".join([b"{}"] * 20) + b"]}",
    ],
)
def test_a_body_of_too_many_parts_is_refused_whatever_their_size(body: bytes) -> None:
    assert (
        len(events(body, LimitsConfig(event_bytes=1000, body_bytes=100_000, body_events=100, body_tokens=2200))) == 20
    )
    with pytest.raises(BadBody) as caught:
        events(body, LimitsConfig(event_bytes=1000, body_bytes=100_000, body_events=100, body_tokens=1000))
    assert (caught.value.status, caught.value.code) == (413, "too_many_tokens")


def test_a_body_of_blanks_costs_nothing_to_speak_of() -> None:
    began = time.process_time()
    for blank in (b" " * 10_000_000, b"\n" * 10_000_000, b" \n" * 5_000_000, b"\r\n" * 5_000_000):
        with pytest.raises(BadBody, match="no line to read"):
            list(lines(blank, LimitsConfig(event_bytes=51_200, body_bytes=10_000_000, body_events=100_000)))
    assert list(
        lines(b"\n" * 5_000_000 + b"x", LimitsConfig(event_bytes=100, body_bytes=10**7, body_events=10**5))
    ) == [Malformed(b"x", "line 5000001: not JSON: Expecting value at line 1 column 1")]
    assert time.process_time() - began < 20
