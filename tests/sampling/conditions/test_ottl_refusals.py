"""What a condition in OTTL must not say: refused when it is read, by name and place."""

from __future__ import annotations

import re

import pytest

from penstock.sampling.conditions.ottl_condition import OttlCondition
from tests.sampling.conditions.tables import Span, met

REFUSED = [
    # functions, paths and enums by their names
    ("Foo(name) == 1", 1, "function `Foo` is not supported; supported: IsMatch, IsRootSpan,"),
    ("Len(name) == 1", 1, "function `Len` is not supported"),
    ('Split(name, ",")[0] == "a"', 1, "function `Split` is not supported"),
    ('set(attributes["a"], 1)', 1, "function `set` is not supported"),
    ("kind == 1 and bar == 1", 15, "path `bar` is not supported; supported: name, kind,"),
    ("resource.bar == 1", 1, "path `resource.bar` is not supported"),
    ("span.resource == nil", 1, "path `span.resource` is not supported"),
    ("span.events == nil", 1, "path `span.events` is not supported"),
    ('spanevent.name == "a"', 1, "path `spanevent.name` is not supported"),
    ("android == 1", 1, "path `android` is not supported"),
    ("kind == SPAN_KIND_FOO", 9, "enum `SPAN_KIND_FOO` is not supported; supported: SPAN_KIND_UNSPECIFIED"),
    # keys
    ("attributes == nil", 1, 'path `attributes` needs a key, as in attributes["name"]'),
    ('name["a"] == nil', 1, "path `name` has no keys"),
    ('attributes["a"]["b"] == 1', 1, "path `attributes` takes one key"),
    ("attributes[0] == 1", 12, "the key of `attributes` must be a text between quotes"),
    ("attributes[name] == 1", 12, "the key of `attributes` must be a text between quotes"),
    # arguments
    ("IsMatch(name)", 1, 'function `IsMatch` is written IsMatch(value, "pattern")'),
    ("IsRootSpan(name)", 1, "function `IsRootSpan` is written IsRootSpan()"),
    ('IsMatch(name, "(a")', 15, "`(a` is not a regular expression of RE2: missing )"),
    ('IsMatch(name, "a{2000}")', 15, "is not a regular expression of RE2"),
    ("IsMatch(name, name)", 15, "the pattern of `IsMatch` must be a text between quotes"),
    ("HasPrefix(name, 1)", 17, "the prefix of `HasPrefix` must be a text between quotes"),
    ('IsMatch(target=name, pattern="a")', 9, "named arguments are not supported"),
    ('Concat(name, "-") == "a"', 8, "`Concat` takes a list between brackets, and a delimiter"),
    ("TraceID(0x00) == trace_id", 9, "`TraceID` takes 16 bytes, written as 0x and 32 digits"),
    ("span_id == SpanID(name)", 19, "`SpanID` takes 8 bytes"),
    # what is no condition, and what is no value
    ("name", 1, "path `name` alone is no condition"),
    ("true and 1", 10, "a literal alone is no condition"),
    ("Int(name)", 1, "function `Int` alone is no condition"),
    ("1 + 2", 1, "a calculation alone is no condition"),
    ("nil", 1, "a literal alone is no condition"),
    ('(name == "a") == true', 2, "a condition has no value that can be used here"),
    ("[1] == [1]", 1, "a list has no value that can be used here"),
    # literals
    ("9223372036854775808 == 1", 1, "`9223372036854775808` is no integer of 64 bits"),
    ("-9223372036854775809 == 1", 2, "`9223372036854775809` is no integer of 64 bits"),
    ("1 == " + 5000 * "9", 6, "is no integer of 64 bits"),
    ("1 == " + 400 * "9" + ".0", 6, "is too large for a double"),
    ("span_id == 0x123", 12, "`0x123` has an odd number of hexadecimal digits"),
    ('name == "\\."', 9, "`\\.` is no escape of a text; a backslash is written `\\\\`"),
    ('name == "\\x4"', 9, "`\\x4` is no escape of a text"),
    ('name == "\\ud800"', 9, "is no escape of a text"),
    ('name == "\\777"', 9, "is no escape of a text"),
    ('name == "\\xff"', 9, "is not a text in UTF-8"),
    ('name == "a\nb"', 9, "a text cannot go on in the next line"),
    ('name == "abc', 9, "the quote is never closed"),
    ("name == 'abc'", 9, "`'` cannot stand here"),
    # syntax
    ("name ==", 8, "the condition ends too early"),
    ("(kind == 1", 11, "the condition ends too early"),
    ("kind == 1)", 10, "`)` cannot stand here"),
    ("kind = 1", 6, "`=` cannot stand here"),
    ("kind == 1 and", 14, "the condition ends too early"),
    ("kind == 1 AND kind == 2", 11, "`AND` cannot stand here"),
    ("1 == 2 == 3", 8, "`==` cannot stand here"),
    ("not not true", 5, "`not` cannot stand here"),
    ('attributes == {"a": 1}', 15, "`{` cannot stand here"),
    ("kind == ٣", 9, "`٣` cannot stand here"),
]


@pytest.mark.parametrize(("condition", "character", "why"), REFUSED, ids=[case[0][:40] for case in REFUSED])
def test_a_condition_is_refused_by_name_and_place(condition: str, character: int, why: str) -> None:
    shown = condition if len(condition) <= 200 else condition[:200]
    with pytest.raises(ValueError, match=re.escape(why)) as caught:
        OttlCondition((condition,))
    assert str(caught.value).startswith(f"condition `{shown}")
    assert f", character {character}: " in str(caught.value)


def test_a_path_of_a_span_needs_its_prefix_in_a_condition_about_events() -> None:
    with pytest.raises(ValueError, match=r"path `kind` is not supported; supported: name, .* span\.kind"):
        OttlCondition((), ("kind == 1",))


@pytest.mark.parametrize("condition", ["", "  \n"])
def test_an_empty_condition_is_refused(condition: str) -> None:
    with pytest.raises(ValueError, match="the condition is empty"):
        OttlCondition((condition,))


def test_an_unknown_error_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="'panic' is not a valid ErrorMode"):
        OttlCondition(("true",), (), "panic")  # type: ignore[arg-type]


def test_no_condition_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="expected at least one condition, under span or spanevent"):
        OttlCondition()


def test_the_length_of_a_condition_has_a_limit() -> None:
    longest = "true or " * 1248 + "kind == 1"
    longest += " " * (10_000 - len(longest))
    assert met(OttlCondition((longest,)), Span()) == [True]
    with pytest.raises(ValueError, match="a condition has at most 10,000 characters"):
        OttlCondition((longest + " ",))


DEEP = [
    ("parentheses", "(" * 64 + "kind == 0" + ")" * 64),
    ("conditions", "not (false or true and " * 64 + "kind == 0" + ")" * 64),
    ("calculations", "1 == " + "1 + 2 * -(" * 64 + "kind" + ")" * 64),
    ("functions", "1 == " + "Int(" * 64 + "kind" + ")" * 64),
    ("functions in calculations", "1 == " + "1 + 2 * -Int(" * 64 + "kind" + ")" * 64),
    ("tests as values", "IsBool(" * 64 + "kind" + ")" * 64),
]


@pytest.mark.parametrize("condition", [case[1] for case in DEEP], ids=[case[0] for case in DEEP])
def test_brackets_may_nest_64_deep_and_no_deeper(condition: str) -> None:
    assert len(met(OttlCondition((condition,)), Span())) == 1
    with pytest.raises(ValueError, match="brackets nest deeper than 64"):
        OttlCondition((condition.replace("kind", "Int(kind)"),))


def test_ten_thousand_brackets_are_refused_and_do_not_exhaust_the_stack() -> None:
    with pytest.raises(ValueError, match="brackets nest deeper than 64"):
        OttlCondition(("(" * 10_000,))
