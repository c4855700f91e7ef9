"""Events that are too large alone."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sessions.trim import TRIMMED, TooLarge, cut_text, trim_attributes

MOST = 6_225_000


def size(value: object) -> int:
    return len(orjson.dumps(value))


@pytest.mark.parametrize("newlines", [0, 3, 5, 20, 1_000])
def test_a_message_of_six_megabytes_with_newlines_is_cut_and_whole_text(newlines: int) -> None:
    text = ("ä" * 3_250_000)[: 3_250_000 - newlines] + "\n" * newlines
    trimmed = trim_attributes({"message": text, "short": "x"}, MOST)
    assert MOST - 8 <= size(trimmed) <= MOST
    assert trimmed["short"] == "x"
    assert text.startswith(str(trimmed["message"]))
    assert trimmed[TRIMMED] == {"message": size(text)}


@pytest.mark.parametrize("character", ["\n", '"', "\\", "\u0001", "\u2028", "𝄞", "日"])
def test_escapes_and_wide_characters_do_not_make_it_longer_than_allowed(character: str) -> None:
    trimmed = trim_attributes({"message": character * 100_000}, 10_000)
    assert 10_000 - size(character) <= size(trimmed) <= 10_000


def test_it_takes_little_time_whatever_the_text_is() -> None:
    began = time.process_time()
    trim_attributes({"message": "\u0001" * 6_500_000}, MOST)
    assert time.process_time() - began < 5


def test_time_grows_with_the_attributes_and_not_with_their_square() -> None:
    attributes = {f"name{number:06d}": "x" * 60 for number in range(60_000)}
    most = size(attributes) * 85 // 100
    began = time.process_time()
    trimmed = trim_attributes(attributes, most)
    with pytest.raises(TooLarge):
        trim_attributes(attributes, most // 4)
    assert time.process_time() - began < 20, "it takes a fraction of a second"
    assert most - len(attributes) <= size(trimmed) <= most


def test_what_fits_is_left_as_it_is() -> None:
    attributes = {"a": "x" * 100, "b": 1}
    assert trim_attributes(attributes, size(attributes)) == attributes


def test_the_longest_values_are_cut_to_one_length_and_short_ones_stay() -> None:
    attributes = {"a": "a" * 1_000, "b": "b" * 900, "c": "c" * 50, "n": 7}
    trimmed = trim_attributes(attributes, 1_000)
    assert (trimmed["c"], trimmed["n"], set(trimmed[TRIMMED])) == ("c" * 50, 7, {"a", "b"})  # type: ignore[call-overload]
    lengths = {name: len(str(trimmed[name])) for name in ("a", "b")}
    assert abs(lengths["a"] - lengths["b"]) <= 1
    assert 999 <= size(trimmed) <= 1_000


def test_only_the_longest_is_cut_if_that_is_enough() -> None:
    trimmed = trim_attributes({"a": "a" * 1_000, "b": "b" * 300}, 1_000)
    assert trimmed["b"] == "b" * 300


def test_what_is_no_text_becomes_the_beginning_of_its_json() -> None:
    trimmed = trim_attributes({"list": list(range(1_000)), "n": 1}, 200)
    assert str(trimmed["list"]).startswith("[0,1,2")


@pytest.mark.parametrize("attributes", [{"x" * 500: "y"}, {str(number): number for number in range(100)}])
def test_names_alone_may_be_too_much(attributes: dict[str, Any]) -> None:
    with pytest.raises(TooLarge):
        trim_attributes(attributes, 300)


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("", 5, ""),
        ("abc", 3, "abc"),
        ("abc", 2, "ab"),
        ("abc", 0, ""),
        ("abc", -1, ""),
        ("ää", 3, "ä"),
        ("a\nb", 2, "a"),
        ("a\nb", 3, "a\n"),
        ("𝄞𝄞", 7, "𝄞"),
        ('""', 3, '"'),
        ("\u0001\u0001", 11, "\u0001"),
    ],
)
def test_a_text_is_cut_between_characters(text: str, most: int, expected: str) -> None:
    assert cut_text(text, most) == expected


VALUES = (
    st.text(max_size=200) | st.integers(-(2**60), 2**60) | st.booleans() | st.lists(st.text(max_size=20), max_size=9)
)


@given(st.dictionaries(st.text(min_size=1, max_size=8), VALUES, max_size=9), st.integers(0, 600))
def test_what_is_left_fits_and_is_a_beginning(attributes: dict[str, Any], most: int) -> None:
    attributes.pop(TRIMMED, None)
    try:
        trimmed = trim_attributes(attributes, most)
    except TooLarge:
        names = {**dict.fromkeys(attributes, ""), TRIMMED: {name: size(attributes[name]) for name in attributes}}
        assert size(names) > most
        return
    assert size(trimmed) <= most
    cut = trimmed.get(TRIMMED, {})
    assert isinstance(cut, dict)
    assert set(trimmed) == {*attributes, *([TRIMMED] if cut else [])}
    for name, value in attributes.items():
        if name in cut:
            assert (value if isinstance(value, str) else orjson.dumps(value).decode()).startswith(str(trimmed[name]))
            assert cut[name] == size(value)
        else:
            assert trimmed[name] == value
