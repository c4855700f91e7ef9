"""Conditions in OTTL, by rule: what they say of a span, and of its events."""

from __future__ import annotations

import pickle

import pytest

from penstock.otlp.span_table import Needs, Text
from penstock.sampling.conditions.ottl_condition import OttlCondition
from penstock.sampling.policy_config import ErrorMode
from tests.sampling.conditions.tables import EMPTY, Event, Span, Value, met

SPAN = Span(
    attributes={
        "text": "hello", "empty text": "", "int": 500, "double": 2.5, "whole": 500.0, "true": True, "false": False,
        "big": 2**53 + 1, "largest": 2**63 - 1, "smallest": -(2**63), "nan": float("nan"), "infinite": float("inf"),
        "bytes": b"\x01", "list": [1], "other list": [1], "map": {"a": 1}, "empty": EMPTY, "number text": "42",
        "unicode": "naïve 🦀", 'quo"ted': "x", "bad number": "4 2", "large text": "99999999999999999999",
    },
    resource={"service.name": "checkout", "text": "of the resource"},
    name="GET /cart",
    kind=2,
    status=2,
    status_message="boom",
    trace_id=0x000102030405060708090A0B0C0D0E0F,
    span_id=0x1112131415161718,
    parent_id=0x2122232425262728,
    trace_state="vendor=1,other=2",
    start=1_700_000_000_000_000_000,
    end=1_700_000_000_250_000_001,
    flags=0x101,
    scope_name="lib",
    scope_version="1.2",
)  # fmt: skip

TRUE = [
    # paths
    'name == "GET /cart"',
    'span.name == "GET /cart"',
    "kind == 2",
    "kind == SPAN_KIND_SERVER",
    'kind.string == "Server"',
    'kind.deprecated_string == "SPAN_KIND_SERVER"',
    "span.kind != SPAN_KIND_CLIENT",
    "status.code == STATUS_CODE_ERROR",
    "span.status.code == 2",
    'status.message == "boom"',
    "trace_id == 0x000102030405060708090a0b0c0d0e0f",
    "trace_id == TraceID(0x000102030405060708090A0B0C0D0E0F)",
    'trace_id.string == "000102030405060708090a0b0c0d0e0f"',
    "span_id == SpanID(0x1112131415161718)",
    'span_id.string == "1112131415161718"',
    "parent_span_id == 0x2122232425262728",
    'parent_span_id.string == "2122232425262728"',
    'trace_state == "vendor=1,other=2"',
    'trace_state["vendor"] == "1"',
    'trace_state["missing"] == ""',
    "start_time_unix_nano == 1700000000000000000",
    "end_time_unix_nano == 1700000000250000001",
    "duration == 250000001",
    "span.duration > 250000000",
    "end_time_unix_nano - start_time_unix_nano >= 250000001",
    "flags == 257",
    'attributes["text"] == "hello"',
    'span.attributes["text"] == "hello"',
    'attributes["quo\\"ted"] == "x"',
    'resource.attributes["service.name"] == "checkout"',
    'resource.attributes["text"] == "of the resource"',
    'instrumentation_scope.name == "lib"',
    'instrumentation_scope.version == "1.2"',
    'scope.name == "lib" and scope.version == "1.2"',
    # nil
    'attributes["missing"] == nil',
    'attributes["empty"] == nil',
    'attributes["text"] != nil',
    'attributes["list"] != nil',
    'attributes["missing"] == attributes["also missing"]',
    "nil == nil",
    "nil <= nil",
    # numbers
    'attributes["int"] >= 500',
    'attributes["int"] == 500.0',
    'attributes["whole"] == 500',
    'attributes["int"] == attributes["whole"]',
    'attributes["double"] > 2',
    '3 > attributes["double"]',
    'attributes["double"] == +2.5',
    'attributes["big"] > 9007199254740992.0',
    'attributes["big"] != 9007199254740992.0',
    "9007199254740993 > 9007199254740992.0",
    'attributes["largest"] == 9223372036854775807',
    'attributes["largest"] < 9223372036854775808.0',
    'attributes["largest"] < attributes["infinite"]',
    'attributes["smallest"] == -9223372036854775808',
    'attributes["smallest"] == -9223372036854775808.0',
    'attributes["nan"] != attributes["nan"]',
    'attributes["nan"] != 1',
    "-.5 < -0.25",
    "1.5e3 == 1500",
    # texts, booleans, bytes
    '"Z" < "a"',
    '"a" < "é" and "é" < "🦀"',
    '"" < "a"',
    'attributes["empty text"] == ""',
    'attributes["true"] == true',
    'attributes["true"] > attributes["false"]',
    "false < true and false <= false",
    "0x01 < 0x0100 and 0x02 > 0x01ff",
    # two kinds
    'attributes["number text"] != 42',
    'attributes["true"] != 1',
    'attributes["bytes"] != "1"',
    'attributes["list"] != attributes["map"]',
    # and, or, not
    "true or false and false",
    "not false",
    "not (true and false)",
    'not name == "x"',
    'not IsRootSpan() and not (name == "x" or kind == 1)',
    "(true)",
    # functions
    'IsMatch(name, "^GET ")',
    'IsMatch(name, "cart$")',
    'IsMatch(attributes["unicode"], "na.ve \\\\p{So}")',
    'IsMatch(attributes["unicode"], "🦀")',
    'IsMatch(attributes["int"], "^50+$")',
    'IsMatch(attributes["double"], "^2\\\\.5$")',
    'IsMatch(attributes["whole"], "^500$")',
    'IsMatch(attributes["true"], "^true$")',
    'IsMatch(attributes["nan"], "^NaN$")',
    'IsMatch(attributes["infinite"], "^.Inf$")',
    'IsMatch(span_id, "^11121314")',
    'not IsMatch(attributes["missing"], "")',
    'IsMatch(name, "cart") == true',
    'IsString(attributes["text"]) and not IsString(attributes["int"]) and not IsString(attributes["missing"])',
    'IsInt(attributes["int"]) and not IsInt(attributes["whole"])',
    'IsDouble(attributes["whole"]) and not IsDouble(nil)',
    'IsBool(attributes["false"]) and IsMap(attributes["map"]) and IsList(attributes["list"])',
    'HasPrefix(name, "GET") and HasSuffix(name, "cart") and not HasPrefix(name, "get")',
    'Int(attributes["number text"]) == 42',
    'Int(attributes["double"]) == 2 and Int(-2.5) == -2 and Int(true) == 1',
    'Int(attributes["bad number"]) == nil and Int(attributes["large text"]) == nil and Int(nil) == nil',
    'Double(attributes["number text"]) == 42.0 and IsDouble(Double(1)) and Double("1e3") == 1000',
    'Double("0x1p-2") == 0.25 and Double("-inf") < -1.0 and Double(nil) == nil',
    'String(attributes["int"]) == "500" and String(1.0) == "1" and String(nil) == nil',
    'String(100000000000000000000000.0) == "100000000000000000000000"',
    'Concat([name, attributes["int"], attributes["missing"]], "|") == "GET /cart|500|<nil>"',
    'Concat([], "-") == ""',
    # arithmetic
    "1 + 2 * 3 - 4 / 2 == 5",
    "(1 + 2) * 3 == 9",
    "-7 / 2 == -3",
    "7 / 2 == 3",
    "-9223372036854775808 / -1 == -9223372036854775808",
    "7 / 2.0 == 3.5",
    "5-3 == 2",
    "9223372036854775807 + 1 == -9223372036854775808",
    '-attributes["int"] == -500',
    # texts with escapes
    '"\\u00e9\\x41\\101\\t\\\\" == "éAA\t\\\\"',
    '"\\U0001f980" == "🦀"',
]


@pytest.mark.parametrize("condition", TRUE)
def test_true_of_the_span(condition: str) -> None:
    assert met(OttlCondition((condition,)), SPAN, SPAN) == [True, True]
    assert met(OttlCondition((f"not ({condition})",)), SPAN) == [False]


FALSE = [
    'attributes["missing"] < 1',
    'attributes["missing"] >= 1',
    'attributes["missing"] == ""',
    'attributes["number text"] > 41',
    'attributes["number text"] == 42',
    'attributes["true"] == 1',
    'attributes["true"] == "true"',
    'attributes["nan"] == attributes["nan"]',
    'attributes["nan"] < 1',
    'attributes["nan"] >= 1',
    "nil < nil",
    "nil < 1",
    "1 > nil",
    'attributes["big"] == 9007199254740992.0',
    'attributes["list"] < attributes["other list"]',
    'attributes["list"] == "1"',
    'trace_id == "000102030405060708090a0b0c0d0e0f"',
    "trace_id == nil",
    "false",
]


@pytest.mark.parametrize("condition", FALSE)
def test_false_of_the_span(condition: str) -> None:
    assert met(OttlCondition((condition,)), SPAN) == [False]
    assert met(OttlCondition((f"not ({condition})",)), SPAN) == [True]


ERRORS = [
    ("a pattern in a list", 'IsMatch(attributes["list"], "1")'),
    ("a pattern in bytes", 'IsMatch(attributes["bytes"], "1")'),
    ("the prefix of a number", 'HasPrefix(attributes["int"], "5")'),
    ("the suffix of nothing", 'HasSuffix(attributes["missing"], "5")'),
    ("a double of a text without one", 'Double(attributes["bad number"]) != 1.0'),
    ("a double that is too large", 'Double("1e400") != 1.0'),
    ("an integer of a double without one", 'Int(attributes["infinite"]) != 1'),
    ("an integer of a map", 'Int(attributes["map"]) != 1'),
    ("a sum with a text", 'attributes["text"] + 1 != 1'),
    ("a sum with nothing", 'attributes["missing"] + 1 != 1'),
    ("minus a text", '-attributes["text"] != 1'),
    ("a division by zero", "1 / 0 != 1"),
    ("a division by zero of a double", "1.5 / 0.0 != 1"),
    ("two lists", 'attributes["list"] != attributes["other list"]'),
    ("bytes that are not known", 'attributes["bytes"] != 0x01'),
]


@pytest.mark.parametrize("condition", [c[1] for c in ERRORS], ids=[c[0] for c in ERRORS])
def test_what_cannot_be_evaluated_is_not_met_and_not_met_the_other_way_round(condition: str) -> None:
    for mode in ErrorMode:
        assert met(OttlCondition((condition,), (), mode), SPAN) == [False]
        assert met(OttlCondition((f"not ({condition})",), (), mode), SPAN) == [False]
        assert met(OttlCondition((f"({condition}) or true",), (), mode), SPAN) == [False]
        assert met(OttlCondition((f"true or ({condition})",), (), mode), SPAN) == [True]
        assert met(OttlCondition((f"not (false and ({condition}))",), (), mode), SPAN) == [True]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ('not (attributes["n"] > 0 and 2 / attributes["n"] == 1)', [True, True, False]),
        ('attributes["n"] == 0 or 2 / attributes["n"] == 1', [True, False, True]),
        ('not (attributes["n"] == 0 or 2 / attributes["n"] == 1)', [False, True, False]),
        ('not ((attributes["n"] == 0 or 2 / attributes["n"] == 1) and kind == 1)', [True, True, True]),
    ],
)
def test_a_span_has_no_error_in_what_it_is_not_asked(condition: str, expected: list[bool]) -> None:
    assert met(OttlCondition((condition,)), *(Span({"n": number}) for number in (0, 1, 2))) == expected


BAD = "1 / 0 == 1"


@pytest.mark.parametrize(
    ("span", "spanevent", "ignored", "propagated"),
    [
        ((BAD, "true"), (), True, False),
        (("true", BAD), (), True, True),
        ((BAD,), ("true",), True, False),
        ((), (BAD, "true"), True, False),
        ((), ('1 / attributes["zero"] == 5', 'attributes["zero"] == 2'), True, False),
        ((), ('1 / attributes["zero"] == 5', 'attributes["zero"] == 1'), True, True),
        (('attributes["missing"] + 1 == 1',), (), False, False),
    ],
    ids=[
        "a later condition",
        "an earlier condition",
        "the events after it",
        "a later condition on the event",
        "a later event",
        "an earlier event",
        "alone",
    ],
)
def test_an_error_hides_what_comes_after_it_only_if_it_is_propagated(
    span: tuple[str, ...], spanevent: tuple[str, ...], ignored: bool, propagated: bool
) -> None:
    events = [Event(attributes={"zero": 1}), Event(attributes={"zero": 0}), Event(attributes={"zero": 2})]
    spans = Span(events=events), Span(events=[Event(attributes={"zero": 5})])
    for mode, expected in ((ErrorMode.IGNORE, ignored), (ErrorMode.SILENT, ignored), (ErrorMode.PROPAGATE, propagated)):
        assert met(OttlCondition(span, spanevent, mode), *spans)[0] == expected


EVENT_CONDITIONS = [
    'name == "exception"',
    'spanevent.name == "exception"',
    'attributes["exception.type"] == "IOError"',
    'spanevent.attributes["exception.type"] == "IOError"',
    "time_unix_nano == 17",
    'name == "exception" and span.name == "GET /cart"',
    'IsMatch(name, "^exc") and span.attributes["int"] == 500',
    'attributes["exception.type"] != nil and resource.attributes["service.name"] == "checkout"',
    'attributes["exception.type"] != nil and scope.name == "lib" and not IsRootSpan()',
    'attributes["exception.type"] != nil and span.trace_state["vendor"] == "1"',
    'attributes["exception.type"] != nil and span.duration > 1',
]


@pytest.mark.parametrize("condition", EVENT_CONDITIONS)
def test_true_of_one_of_the_events_of_the_span(condition: str) -> None:
    exception = Event("exception", {"exception.type": "IOError"}, 17)
    attributes = {**SPAN.__dict__, "events": [Event("retry"), exception, Event("retry")]}
    spans = Span(), SPAN, Span(**attributes), Span(events=[Event("retry")]), Span()
    assert met(OttlCondition((), (condition,)), *spans) == [False, False, True, False, False]


def test_a_span_condition_or_an_event_condition_is_enough() -> None:
    condition = OttlCondition(("kind == 2", "kind == 3"), ('name == "a"', 'name == "b"'))
    spans = Span(kind=2), Span(kind=3), Span(kind=4), Span(events=[Event("x"), Event("b")]), Span(events=[Event("c")])
    assert met(condition, *spans) == [True, True, False, True, False]


def test_a_condition_about_events_alone_is_asked_once_per_event() -> None:
    assert met(OttlCondition((), ("true",)), Span(), Span(events=[Event()]), Span()) == [False, True, False]


@pytest.mark.parametrize(("start", "end"), [(0, 5), (5, 0), (0, 0)])
def test_a_span_without_a_start_or_an_end_has_no_duration(start: int, end: int) -> None:
    assert met(OttlCondition(("duration == nil",)), Span(start=start, end=end)) == [True]


def test_a_span_that_ends_before_it_starts_has_a_negative_duration() -> None:
    assert met(OttlCondition(("duration == -2",)), Span(start=5, end=3)) == [True]


def test_a_kind_without_a_name_and_a_malformed_trace_state() -> None:
    spans = Span(kind=77, trace_state="bad"), Span(kind=6, trace_state="a=1,a=2")
    assert met(OttlCondition(('kind.string == "" and trace_state["a"] == nil',)), *spans) == [True, True]


def test_root_spans_of_ottl_have_an_empty_parent() -> None:
    spans = Span(parent_id=0), Span(parent_id=0x08090A0B0C0D0E0F)
    assert met(OttlCondition(("IsRootSpan()",)), *spans) == [True, False]


def test_rows_of_one_table_keep_their_own_kinds() -> None:
    values: list[Value] = [500, "500", 500.0, 500.5, True, EMPTY, [1], 499, 2**63 - 1]
    spans = [Span({"v": value}) for value in values]
    expected = [True, False, True, True, False, False, False, False, True]
    assert met(OttlCondition(('attributes["v"] >= 500',)), *spans) == expected
    expected = [True, True, True, True, False, False, False, False, False]
    assert met(OttlCondition(('IsMatch(attributes["v"], "^500")',)), *spans) == expected


def test_a_condition_asks_for_what_it_looks_at_and_no_more() -> None:
    condition = OttlCondition(
        ('attributes["a"] == resource.attributes["b"] and name != ""', 'trace_state["x"] == Concat([scope.name], "")'),
        ('attributes["c"] == span.attributes["d"]',),
    )
    assert condition.needs == Needs(
        frozenset([Text.NAME, Text.TRACE_STATE, Text.SCOPE_NAME]),
        frozenset(["a", "d"]),
        frozenset(["b"]),
        True,
        frozenset(["c"]),
    )
    assert OttlCondition(("kind == 1 and duration > 5",)).needs == Needs()
    assert OttlCondition((), ("span.kind == 1",)).needs == Needs(events=True)


def test_equal_conditions_are_one_and_travel_between_processes() -> None:
    condition = OttlCondition(("kind == 1",), ('name == "a"',), ErrorMode.SILENT)
    same = pickle.loads(pickle.dumps(condition))
    assert {condition, same, OttlCondition(("kind == 1",))} == {same, OttlCondition(("kind == 1",))}
    assert met(same, Span(kind=1), Span()) == [True, False]


def test_no_spans_get_no_answers() -> None:
    condition = OttlCondition(('IsMatch(attributes["a"], "b") or trace_id == 0x00',), ('attributes["a"] == 1',))
    assert met(condition) == []
