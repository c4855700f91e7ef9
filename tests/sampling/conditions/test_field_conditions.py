"""Conditions on the status, the flags, the parent and the trace state of a span."""

from __future__ import annotations

import pytest

from penstock.sampling.conditions.field_conditions import RootSpan, StatusIs, TraceFlagsSampled, TraceState
from penstock.sampling.conditions.span_condition import SpanCondition
from penstock.sampling.conditions.trace_states import parse_trace_state
from tests.sampling.conditions.tables import Span, met

UNSET, OK, ERROR, UNKNOWN = (Span(status=status) for status in (0, 1, 2, 77))


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (("ERROR",), [False, False, True, False]),
        (("OK",), [False, True, False, False]),
        (("UNSET",), [True, False, False, False]),
        (("OK", "ERROR"), [False, True, True, False]),
        (("OK", "ERROR", "UNSET"), [True, True, True, False]),
    ],
)
def test_a_span_has_one_of_the_status_codes(codes: tuple[str, ...], expected: list[bool]) -> None:
    assert met(StatusIs(codes), UNSET, OK, ERROR, UNKNOWN) == expected


def test_the_sampled_flag_is_the_lowest_bit() -> None:
    spans = [Span(flags=flags) for flags in (0, 1, 2, 3, 0x300, 0x301, 0xFFFFFFFE)]
    assert met(TraceFlagsSampled(), *spans) == [False, True, False, True, False, True, False]


@pytest.mark.parametrize(
    ("parent", "expected"),
    [(0, True), (0x08090A0B0C0D0E0F, True), (0x0001020304050607, False), (1, False), (2**64 - 1, False)],
    ids=["no parent", "right half of the trace id", "left half of the trace id", "a parent", "the last id"],
)
def test_a_root_span(parent: int, expected: bool) -> None:
    assert met(RootSpan(), Span(parent_id=parent)) == [expected]


TRACE_STATES = [
    ("the member", "key=1", True),
    ("another value", "key=2", False),
    ("another key", "other=1", False),
    ("a key that ends like it", "my-key=1", False),
    ("the member after others", "a=x,b=y,key=1", True),
    ("spaces and tabs around members", " a=x ,\tkey=1\t", True),
    ("empty members", ",,a=x, ,key=1,", True),
    ("no space within a member", "key =1", False),
    ("none at all", "", False),
    ("a member without a value spoils all", "key=1,b", False),
    ("an empty value spoils all", "key=1,b=", False),
    ("an upper-case key spoils all", "key=1,B=2", False),
    ("a second equals sign spoils all", "key=1,b=2=3", False),
    ("a key twice spoils all", "key=1,key=1", False),
    ("a letter that is not ASCII spoils all", "key=1,b=é", False),
    ("a key of a tenant", "key=1,1tenant@vendor=x", True),
    ("a tenant without a system spoils all", "key=1,tenant@=x", False),
    ("a long value", "key=1,b=" + 256 * "x", True),
    ("too long a value spoils all", "key=1,b=" + 257 * "x", False),
    ("32 members", "key=1," + ",".join(f"k{n}=x" for n in range(31)), True),
    ("33 members spoil all", "key=1," + ",".join(f"k{n}=x" for n in range(32)), False),
]


@pytest.mark.parametrize(("text", "expected"), [c[1:] for c in TRACE_STATES], ids=[c[0] for c in TRACE_STATES])
def test_a_trace_state_has_a_member(text: str, expected: bool) -> None:
    spans = Span(trace_state=text), Span(trace_state="key=0"), Span(trace_state=text)
    assert met(TraceState("key", ("1", "")), *spans) == [expected, False, expected]


def test_a_trace_state_keeps_the_spaces_inside_of_its_values() -> None:
    assert parse_trace_state("a= x y ,b=1") == {"a": " x y", "b": "1"}


def test_a_value_too_long_for_its_key_is_never_met() -> None:
    condition = TraceState("key", (253 * "x", 252 * "x"))
    spans = Span(trace_state=f"key={253 * 'x'}"), Span(trace_state=f"key={252 * 'x'}")
    assert met(condition, *spans) == [False, True]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StatusIs(()), "at least one status code"),
        (lambda: StatusIs(("OK", "Error")), "unknown status code `Error`, supported: OK, ERROR, UNSET"),
        (lambda: TraceState("", ("a",)), "the key of the trace state is empty"),
        (lambda: TraceState("key", ()), "at least one value"),
    ],
)
def test_a_bad_option_is_refused_when_the_condition_is_made(make: type[SpanCondition], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("condition", [StatusIs(("OK",)), TraceFlagsSampled(), RootSpan(), TraceState("k", ("v",))])
def test_no_spans_get_no_answers(condition: SpanCondition) -> None:
    assert met(condition) == []
