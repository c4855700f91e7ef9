"""Conditions on one attribute, of the span or of its resource."""

from __future__ import annotations

import pickle

import pytest

from penstock.otlp.span_table import Needs
from penstock.sampling.conditions.attribute_conditions import BooleanAttribute, NumericAttribute, StringAttribute
from penstock.sampling.conditions.span_condition import SpanCondition
from tests.sampling.conditions.tables import EMPTY, Span, Value, met

NO_STRINGS: list[Value] = [1, 1.0, True, b"a", [1], {"a": 1}, EMPTY]

STRINGS = [
    ("one of the values", ("a", "b"), False, "b", True),
    ("none of the values", ("a", "b"), False, "c", False),
    ("only a part of a value", ("abc",), False, "ab", False),
    ("another case", ("a",), False, "A", False),
    ("no letters of ASCII", ("größe",), False, "größe", True),
    ("an empty value stands for nothing", ("", "a"), False, "", False),
    ("a pattern is a plain value without regex", ("a.*",), False, "abc", False),
    ("a pattern is found anywhere", ("b+",), True, "abbc", True),
    ("a pattern can be anchored", ("^b",), True, "ab", False),
    ("the end is the end of the text", ("^a$",), True, "a\n", False),
    ("one of the patterns", ("x", "^a"), True, "ab", True),
    ("a pattern without case", ("(?i)ERROR",), True, "an error", True),
    ("a dot is a character, not a byte", ("^.$",), True, "é", True),
    ("a class of Unicode", (r"^\p{Greek}+$",), True, "αβγ", True),
    ("a wide character", ("🦀{2}",), True, "a🦀🦀", True),
]


@pytest.mark.parametrize(("values", "regex", "text", "expected"), [c[1:] for c in STRINGS], ids=[c[0] for c in STRINGS])
def test_a_string_attribute_of_span_or_resource(
    values: tuple[str, ...], regex: bool, text: str, expected: bool
) -> None:
    condition = StringAttribute("key", values, regex)
    spans = Span({"key": text}), Span(resource={"key": text}), Span({"other": text}), Span({"key": text}, {"key": "-"})
    assert met(condition, *spans) == [expected, expected, False, expected]


@pytest.mark.parametrize("value", NO_STRINGS, ids=repr)
def test_a_value_that_is_no_string_is_none_of_the_values(value: Value) -> None:
    for condition in (StringAttribute("key", ("1", "true", "a", "")), StringAttribute("key", (".*",), regex=True)):
        assert met(condition, Span({"key": value}), Span(resource={"key": value})) == [False, False]


def test_an_empty_string_matches_a_pattern_only_in_a_resource() -> None:
    condition = StringAttribute("key", (".*",), regex=True)
    assert met(condition, Span({"key": ""}), Span(resource={"key": ""})) == [False, True]


NUMBERS = [
    ("inside", 1, 10, 5, True),
    ("at the lower bound", 1, 10, 1, True),
    ("at the upper bound", 1, 10, 10, True),
    ("below", 1, 10, 0, False),
    ("above", 1, 10, 11, False),
    ("without an upper bound", 1, None, 2**63 - 1, True),
    ("without a lower bound", None, 1, -(2**63), True),
    ("zero is a bound", 0, 0, 0, True),
    ("the largest integers are told apart", 2**63 - 1, None, 2**63 - 2, False),
    ("a double is no integer", 1, 10, 5.0, False),
    ("a string is no integer", -1, 10, "5", False),
    ("a boolean is no integer", 0, 10, True, False),
    ("nothing is no integer", -1, 1, EMPTY, False),
]


@pytest.mark.parametrize(("low", "high", "value", "expected"), [c[1:] for c in NUMBERS], ids=[c[0] for c in NUMBERS])
def test_an_integer_attribute_in_a_range(low: int | None, high: int | None, value: Value, expected: bool) -> None:
    spans = Span({"key": value}), Span(resource={"key": value}), Span()
    assert met(NumericAttribute("key", low, high), *spans) == [expected, expected, False]


BOOLEANS: list[tuple[bool, Value, bool]] = [
    (True, True, True),
    (True, False, False),
    (False, False, True),
    (False, True, False),
    (True, 1, False),
    (False, 0, False),
    (True, "true", False),
    (False, EMPTY, False),
]


@pytest.mark.parametrize(("wanted", "value", "expected"), BOOLEANS)
def test_a_boolean_attribute(wanted: bool, value: Value, expected: bool) -> None:
    spans = Span({"key": value}), Span(resource={"key": value}), Span()
    assert met(BooleanAttribute("key", wanted), *spans) == [expected, expected, False]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StringAttribute("", ("a",)), "the key of the attribute is empty"),
        (lambda: StringAttribute("key", ()), "at least one value"),
        (lambda: StringAttribute("key", ("a", "(b"), regex=True), r"`\(b` is not a regular expression of RE2: missing"),
        (lambda: StringAttribute("key", (r"(a)\1",), regex=True), "is not a regular expression"),
        (lambda: NumericAttribute("key"), "expected min_value, max_value or both"),
        (lambda: NumericAttribute("key", 2, 1), "min_value 2 is above max_value 1"),
        (lambda: NumericAttribute("key", 2**63), "min_value must be an integer of 64 bits"),
        (lambda: BooleanAttribute("", True), "the key of the attribute is empty"),
    ],
)
def test_a_bad_option_is_refused_when_the_condition_is_made(make: type[SpanCondition], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "condition",
    [StringAttribute("key", ("a",)), NumericAttribute("key", 1), BooleanAttribute("key", True)],
    ids=lambda condition: type(condition).__name__,
)
def test_the_attribute_is_asked_for_in_span_and_resource(condition: SpanCondition) -> None:
    key = frozenset(["key"])
    assert condition.needs == Needs(span_attributes=key, resource_attributes=key)
    assert {condition, pickle.loads(pickle.dumps(condition))} == {condition}
    assert met(condition) == []
