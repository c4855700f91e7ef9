"""Edits by spans: what is put, taken or renamed changes; every other byte stays."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.json.arrow_text import quote, text_of, verbatim_values
from penstock.json.edit import put, wrap_values
from penstock.json.find import find
from penstock.json.members import drop_members, keep_members, rename_members
from penstock.json.merge import merge_objects
from penstock.json.read_numbers import numbers
from penstock.json.tokens import FLOAT, INT
from penstock.testing.step import DOCUMENTS
from tests.steps import reference


def array(*documents: bytes | None) -> pa.BinaryArray:
    return pa.array(documents, pa.binary())


def test_a_slice_of_an_array_is_edited_like_the_whole() -> None:
    whole = array(b'{"a":1}', b'{"a":2,"b":3}', None, b'{"b":4}', b"x")
    part = whole.slice(1, 3)
    assert drop_members(part, [("a",)]).data.to_pylist() == [b'{"b":3}', b"", b'{"b":4}']
    assert keep_members(part, [("a",)]).data.to_pylist() == [b'{"a":2}', b"", b"{}"]
    assert rename_members(part, {("b",): "c"}).data.to_pylist() == [b'{"a":2,"c":3}', b"", b'{"c":4}']
    assert put(part, ("z",), array(b"1", b"2", None)).data.to_pylist() == [b'{"a":2,"b":3,"z":1}', None, b'{"b":4}']


def test_what_is_no_object_is_marked_and_put_leaves_it_alone() -> None:
    data = array(b"[1]", b'{"a":1', None, b"{}")
    assert drop_members(data, [("a",)]).valid.tolist() == [False, False, False, True]
    assert put(data, ("a",), array(b"1", b"1", b"1", b"1")).data.to_pylist() == [b"[1]", b'{"a":1', None, b'{"a":1}']


def test_a_blocked_put_says_at_which_depth() -> None:
    result = put(array(b'{"a":{"b":1}}', b'{"a":1}', b"{}"), ("a", "b", "c"), array(b"0", b"0", b"0"))
    assert result.blocked_at.tolist() == [2, 1, -1]


def test_wrapping_nests_each_value_whole() -> None:
    assert wrap_values(array(b'{"x":1.0}', None, b"[]"), ("a", "b")).to_pylist() == [
        b'{"a":{"b":{"x":1.0}}}',
        None,
        b'{"a":{"b":[]}}',
    ]


@settings(max_examples=80, deadline=None)
@given(DOCUMENTS, DOCUMENTS)
def test_merging_does_what_the_slow_way_does(target: bytes, source: bytes) -> None:
    assert json.loads(merge_objects(target, source)) == reference.merged(json.loads(target), json.loads(source))


def test_merging_keeps_the_spelling_of_values() -> None:
    assert merge_objects(b'{"a" : 2.50, "b":{"c":1E2}}', b'{"b":{"d":-0}, "e":"\\u00e9"}') == (
        b'{"a":2.50,"b":{"c":1E2,"d":-0},"e":"\\u00e9"}'
    )


@settings(max_examples=80, deadline=None)
@given(st.lists(st.text()))
def test_quoted_text_reads_back(texts: list[str]) -> None:
    for quoted, text in zip(quote(pa.array(texts, pa.string())).to_pylist(), texts, strict=True):
        assert json.loads(quoted) == text


@settings(max_examples=80, deadline=None)
@given(st.lists(st.none() | st.text() | st.integers() | st.booleans(), min_size=1), st.booleans())
def test_text_and_spelling_of_values(values: list[object], ascii_only: bool) -> None:
    spelled = [json.dumps(value, ensure_ascii=ascii_only).encode() for value in values]
    found = find(array(b"{}", *(b'{"k": %b }' % some for some in spelled)), [("k",)])
    assert verbatim_values(found, 0).to_pylist() == [None, *spelled]
    expected = [value if isinstance(value, str) else some.decode() for value, some in zip(values, spelled, strict=True)]
    assert text_of(found, 0).to_pylist() == ["", *expected]


NUMBERS = (
    st.integers().map(str)
    | st.integers(-(2**64), 2**64).map(str)
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.decimals(allow_nan=False, allow_infinity=False, places=4).map("{:f}".format)
    | st.from_regex(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
)


@settings(max_examples=80, deadline=None)
@given(st.lists(NUMBERS, min_size=1))
def test_numbers_are_read_exactly(texts: list[str]) -> None:
    found = find(array(*(f'{{"n":{text}}}'.encode() for text in texts)), [("n",)])
    assert found.valid.all()
    kinds, ints, floats, _ = numbers(found, 0)
    for row, text in enumerate(texts):
        value = json.loads(text)
        assert np.float64(floats[row]) == float(text)
        if isinstance(value, int) and -(2**63) <= value < 2**63:
            assert kinds[row] == INT
            assert ints[row] == value
        else:
            assert kinds[row] == FLOAT


@pytest.mark.parametrize("text", ["9223372036854775807", "-9223372036854775808", "1000000000000000000"])
def test_the_largest_integers_stay_integers(text: str) -> None:
    kinds, ints, _, _ = numbers(find(array(f'{{"n":{text}}}'.encode()), [("n",)]), 0)
    assert (kinds[0], ints[0]) == (INT, int(text))
