"""A key in the start of a text that may be cut, or no JSON: found where it is, at a bounded cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sources.json_start import first_string
from penstock.sources.json_text import members
from tests.sources.test_jsontext import STYLES, VALUES, text_of


@given(VALUES, STYLES, st.booleans(), st.integers(0, 200))
def test_a_string_is_found_in_an_object_that_is_cut_anywhere(
    value: object, style: tuple[str, str], ascii_only: bool, cut: int
) -> None:
    text = text_of({"other": value, "key": "found", "after": value}, style, ascii_only)
    position = members(text)[1].value.end
    assert first_string(text, "key") == "found"
    assert first_string(text[:cut], "key") == ("found" if cut >= position else None)


@pytest.mark.parametrize("text", [b'{"' + b'\\"' * 500_000, b'{"a":"' + b"\\" * 1_000_001, b'{"' * 500_000])
def test_text_that_is_no_json_takes_no_longer_than_its_length_asks_for(text: bytes) -> None:
    """By the square of its length it would be hours."""
    assert first_string(text, "writeKey") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"key":"a"}', "a"),
        (b' \n{ "key" \t:\r\n "a" ', "a"),
        (b'{"key":7,"key":"a","key":"b"}', "a"),
        (b'{"k\\u0065y":"\\u00e9\\"}"', 'é"}'),
        (b'{"\\u006B\\u0065y":"a"', "a"),
        (b'{"batch":[{"key":"inner","x":"]}"}],"key":"a"}', "a"),
        (b'{"text":"{\\"key\\":\\"inner\\"","key":"a"}', "a"),
        (b'{"path":"C:\\\\","key":"a"}', "a"),
        (b'{"a":"key","b":"x"}', None),
        (b'{"a":{"key":"inner"}}', None),
        (b'[{"key":"inner"}]', None),
        (b'"key":"a"', None),
        (b'{"key":"cut', None),
        (b'{"key":"cut\\"', None),
        (b'{"key":"\\x"}', None),
        (b'{"key":"\xff"}', None),
        (b'{"KEY":"a"}', None),
        (b"", None),
    ],
)
def test_only_a_string_of_the_outermost_object_counts(text: bytes, expected: str | None) -> None:
    assert first_string(text, "key") == expected
