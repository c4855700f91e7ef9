"""Numbers compare by what is written, as Python's ``Decimal`` compares them, and whatever their size."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.json.compare_numbers import as_json, number_key

SPELT = st.from_regex(r"[+-]?([0-9]{1,25}\.?[0-9]{0,25}|\.[0-9]{1,25})([eE][+-]?[0-9]{1,3})?", fullmatch=True)


@settings(max_examples=500, deadline=None)
@given(SPELT, SPELT)
def test_they_compare_as_decimals_do(one: str, other: str) -> None:
    left, right = Decimal(one), Decimal(other)
    assert (number_key(one) < number_key(other), number_key(one) == number_key(other)) == (left < right, left == right)


@given(SPELT)
def test_json_gets_the_same_number(text: str) -> None:
    written = as_json(text)
    assert number_key(written) == number_key(text)
    json.loads(written)


@pytest.mark.parametrize("text", ["1", "1.0", "1e0", "10e-1", "0.1e1", "+1", "01", "1.", "1" + 30 * "0" + "e-30"])
def test_one_number_in_many_spellings(text: str) -> None:
    assert number_key(text) == number_key("1")


def test_no_exponent_is_too_large() -> None:
    rising = ["-1e99999999999999999999", "-1e400", "-1", "-1e-400", "-0", "1e-400", "1", "1e400", "9e400"]
    rising += ["1e99999999999999999999", "1e" + 5000 * "9"]
    assert sorted(rising, key=number_key) == rising
    assert number_key("0e999") == number_key("-0.0") == number_key("0")


@pytest.mark.parametrize("text", ["", ".", "-", "e5", "1e", "x", "1_0", "inf", "nan", "٣", "1 "])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        number_key(text)
