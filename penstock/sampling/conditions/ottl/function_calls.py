"""The functions that a condition may call: what they take, and what they become."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from penstock.otlp.span_table import ValueKind
from penstock.sampling.conditions.distinct_texts import check_pattern
from penstock.sampling.conditions.ottl.condition_error import Misread
from penstock.sampling.conditions.ottl.condition_rows import Test, Value
from penstock.sampling.conditions.ottl.convert_values import to_doubles, to_integers, to_texts
from penstock.sampling.conditions.ottl.expressions import (
    Concatenated,
    Converted,
    Given,
    HasEdge,
    HasNoParent,
    IsOfKind,
    Matches,
)
from penstock.sampling.conditions.ottl.syntax_tree import Call, ListOf, Literal, Written
from penstock.sampling.conditions.ottl.value_columns import Column

_TRACE_ID_BYTES, _SPAN_ID_BYTES = 16, 8

ReadValue = Callable[[Written], Value]
"""How a function makes values of its arguments."""


@dataclass(frozen=True)
class Function:
    """How it is written, with its arguments, and what makes a part of a condition of a call."""

    written: str
    arguments: int


@dataclass(frozen=True)
class TestFunction(Function):
    """A function that is true or false."""

    make: Callable[[Call, ReadValue], Test]


@dataclass(frozen=True)
class ValueFunction(Function):
    """A function that has another value."""

    make: Callable[[Call, ReadValue], Value]


def find_function(call: Call) -> TestFunction | ValueFunction:
    """The function of a call, with as many arguments as it takes; else ``Misread``."""
    function = FUNCTIONS.get(call.name)
    if function is None:
        raise Misread(call.at, f"function `{call.name}` is not supported; supported: {', '.join(FUNCTIONS)}")
    if call.indexed or len(call.arguments) != function.arguments:
        raise Misread(call.at, f"function `{call.name}` is written {function.written}")
    return function


def _constant_text(call: Call, place: int, what: str) -> str:
    argument = call.arguments[place]
    if isinstance(argument, Literal) and isinstance(argument.value, str):
        return argument.value
    raise Misread(argument.at, f"the {what} of `{call.name}` must be a text between quotes")


def _is_match(call: Call, value: ReadValue) -> Test:
    pattern = _constant_text(call, 1, "pattern")
    try:
        check_pattern(pattern)
    except ValueError as error:
        raise Misread(call.arguments[1].at, str(error)) from error
    return Matches(value(call.arguments[0]), pattern)


def _has_edge(at_end: bool, call: Call, value: ReadValue) -> Test:
    edge = _constant_text(call, 1, "suffix" if at_end else "prefix")
    return HasEdge(value(call.arguments[0]), edge, at_end)


def _is_of_kind(kind: ValueKind, call: Call, value: ReadValue) -> Test:
    return IsOfKind(value(call.arguments[0]), kind)


def _converted(convert: Callable[[Column], Column], call: Call, value: ReadValue) -> Value:
    return Converted(convert, value(call.arguments[0]))


def _concat(call: Call, value: ReadValue) -> Value:
    items = call.arguments[0]
    if not isinstance(items, ListOf):
        raise Misread(items.at, "`Concat` takes a list between brackets, and a delimiter")
    return Concatenated(tuple(map(value, items.items)), _constant_text(call, 1, "delimiter"))


def _id(length: int, call: Call, value: ReadValue) -> Value:
    argument = call.arguments[0]
    if isinstance(argument, Literal) and isinstance(argument.value, bytes) and len(argument.value) == length:
        return Given(argument.value)
    raise Misread(argument.at, f"`{call.name}` takes {length} bytes, written as 0x and {2 * length} digits")


def _kind_test(name: str, kind: ValueKind) -> TestFunction:
    return TestFunction(f"{name}(value)", 1, partial(_is_of_kind, kind))


FUNCTIONS: Mapping[str, TestFunction | ValueFunction] = {
    "IsMatch": TestFunction('IsMatch(value, "pattern")', 2, _is_match),
    "IsRootSpan": TestFunction("IsRootSpan()", 0, lambda call, value: HasNoParent()),
    "IsString": _kind_test("IsString", ValueKind.STRING),
    "IsInt": _kind_test("IsInt", ValueKind.INT),
    "IsDouble": _kind_test("IsDouble", ValueKind.DOUBLE),
    "IsBool": _kind_test("IsBool", ValueKind.BOOL),
    "IsMap": _kind_test("IsMap", ValueKind.MAP),
    "IsList": _kind_test("IsList", ValueKind.ARRAY),
    "HasPrefix": TestFunction('HasPrefix(value, "prefix")', 2, partial(_has_edge, False)),
    "HasSuffix": TestFunction('HasSuffix(value, "suffix")', 2, partial(_has_edge, True)),
    "Int": ValueFunction("Int(value)", 1, partial(_converted, to_integers)),
    "Double": ValueFunction("Double(value)", 1, partial(_converted, to_doubles)),
    "String": ValueFunction("String(value)", 1, partial(_converted, to_texts)),
    "Concat": ValueFunction('Concat([value, ...], "delimiter")', 2, _concat),
    "TraceID": ValueFunction("TraceID(0x...)", 1, partial(_id, _TRACE_ID_BYTES)),
    "SpanID": ValueFunction("SpanID(0x...)", 1, partial(_id, _SPAN_ID_BYTES)),
}
