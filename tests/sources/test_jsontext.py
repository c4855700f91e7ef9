"""What counts as JSON, and where its parts are."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sources.json_text import NotJson, elements, members, parse

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
STYLES = st.sampled_from([(", ", ": "), (",", ":"), (" ,\n\t", " :\r\n ")])


def text_of(value: object, style: tuple[str, str], ascii_only: bool) -> bytes:
    return json.dumps(value, separators=style, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1e400}',
        b'{"a":12345678901234567890123}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":"\\ud800"}',
        b'{"a":1,"a":2}',
        b"[" * 200 + b"]" * 200,
        b'{"a":"\\ud83d\\ude00 \xf0\x9f\x98\x80"}',
    ],
)
def test_odd_but_valid_json_is_taken(text: bytes) -> None:
    parse(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"a":NaN}', "NaN"),
        (b'{"a":-Infinity}', "Infinity"),
        (b'{"a":1', "line 1 column"),
        (b'{\n"a":x}', "line 2 column 5"),
        (b'{"a":"\xff"}', "UTF-8 at byte 6"),
        (b'{"a":"\xed\xa0\x80"}', "UTF-8"),
        (b'{"a":"\x01"}', "control character"),
        (b"{} {}", "Extra data"),
        (b"[" * 100_000, "deeply"),
        (b'{"a":' * 100_000, "deeply"),
        (b"[" * 100_000 + b"]" * 100_000, "deeply"),
        (b"\xff\xfe{\x00}\x00", "UTF-8"),
    ],
)
def test_what_is_not_json_is_refused_with_its_place(text: bytes, reason: str) -> None:
    with pytest.raises(NotJson, match=reason):
        parse(text)


@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=5), STYLES, st.booleans())
def test_members_are_found_exactly(value: dict[str, object], style: tuple[str, str], ascii_only: bool) -> None:
    text = text_of(value, style, ascii_only)
    found = members(text)
    assert {member.key: json.loads(text[member.value.start : member.value.end]) for member in found} == value
    for member in found:
        piece = text[member.start : member.value.end]
        assert json.loads(b"{" + piece + b"}") == {member.key: value[member.key]}
        assert piece == piece.strip()


@given(st.lists(VALUES, max_size=5), STYLES, st.booleans())
def test_elements_are_found_exactly(value: list[object], style: tuple[str, str], ascii_only: bool) -> None:
    text = text_of(value, style, ascii_only)
    assert [json.loads(text[span.start : span.end]) for span in elements(text)] == value


def test_repeated_keys_are_all_found() -> None:
    text = b'{"a":1, "\\u0061":{"a":2}, "a" : [3] }'
    assert [text[m.value.start : m.value.end] for m in members(text) if m.key == "a"] == [b"1", b'{"a":2}', b"[3]"]


def test_members_do_not_mind_depth() -> None:
    deep = b'{"a":' * 20_000 + b"1" + b"}" * 20_000
    (member,) = members(deep)
    assert member.value.end == len(deep) - 1
