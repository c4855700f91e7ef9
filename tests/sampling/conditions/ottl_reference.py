"""OTTL one span at a time, in plain Python: what the vectorised conditions must say too.

A condition is a tree of small tuples here: it can be written as text, and evaluated.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.sampling.conditions.tables import Attributes, Empty, Event, Span, Value


class Failed(Exception):
    """The condition cannot be evaluated."""


@dataclass(frozen=True)
class Opaque:
    """A value of which only the type is known."""

    type: type


Plain = str | bool | int | float | bytes | None | Opaque
ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
TYPES = {"IsString": str, "IsInt": int, "IsDouble": float, "IsBool": bool}
OPAQUE_TYPES = {"IsMap": dict, "IsList": list}


@dataclass(frozen=True)
class Tree:
    """``form`` is a name or an operator; ``parts`` are trees, or what the form takes."""

    form: str
    parts: tuple[Tree | str | Plain, ...]

    @property
    def text(self) -> str:
        match self.form, self.parts:
            case "literal", (value,):
                return literal(value)
            case "path", (name, None):
                return str(name)
            case "path", (str() as name, key):
                return f"{name}[{literal(key)}]"
            case "and" | "or", parts:
                return "(" + f" {self.form} ".join(text(part) for part in parts) + ")"
            case "not", (part,):
                return f"(not {text(part)})"
            case "minus", (part,):
                return f"-({text(part)})"
            case "compare" | "calculate", (str() as symbol, left, right):
                return f"({text(left)} {symbol} {text(right)})"
            case "Concat", (*parts, delimiter):
                return f"Concat([{', '.join(map(text, parts))}], {literal(delimiter)})"
            case name, parts:
                return f"{name}({', '.join(map(text, parts))})"


def text(part: Tree | Plain) -> str:
    return part.text if isinstance(part, Tree) else literal(part)


def literal(value: Tree | Plain) -> str:
    match value:
        case None:
            return "nil"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return np.format_float_positional(value, unique=True, trim="0")
        case bytes():
            return f"0x{value.hex()}"
        case str():
            escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            return f'"{escaped}"'
    raise AssertionError(value)


def is_met(spans: list[Tree], events: list[Tree], span: Span, *, propagate: bool) -> bool:
    """One of the first is true of the span, or one of the others of one of its events."""
    questions: list[tuple[Tree, Event | None]] = [(tree, None) for tree in spans]
    questions += [(tree, event) for event in span.events for tree in events]
    for tree, event in questions:
        try:
            if evaluate(tree, span, event):
                return True
        except Failed:
            if propagate:
                return False
    return False


def evaluate(tree: Tree | Plain, span: Span, event: Event | None) -> Plain:
    if not isinstance(tree, Tree):
        return tree

    def value(part: Tree | Plain) -> Plain:
        return evaluate(part, span, event)

    match tree.form, tree.parts:
        case "literal", (constant,):
            return value(constant)
        case "path", (str() as name, key):
            return follow(name, key if isinstance(key, str) else "", span, event)
        case "and", parts:
            return all(value(part) for part in parts)
        case "or", parts:
            return any(value(part) for part in parts)
        case "not", (part,):
            return not value(part)
        case "compare", (str() as symbol, left, right):
            return compare(symbol, value(left), value(right))
        case "calculate", (str() as symbol, left, right):
            return calculate(symbol, value(left), value(right))
        case "minus", (part,):
            return calculate("*", value(part), -1)
        case "IsRootSpan", ():
            return span.parent_id == 0
        case "IsMatch", (part, str() as pattern):
            found = as_text(value(part))
            return found is not None and re.search(pattern, found) is not None
        case "HasPrefix", (part, str() as prefix):
            return as_string(value(part)).startswith(prefix)
        case "HasSuffix", (part, str() as suffix):
            return as_string(value(part)).endswith(suffix)
        case ("IsString" | "IsInt" | "IsDouble" | "IsBool") as name, (part,):
            return type(value(part)) is TYPES[name]
        case ("IsMap" | "IsList") as name, (part,):
            return value(part) == Opaque(OPAQUE_TYPES[name])
        case "Int", (part,):
            return as_integer(value(part))
        case "Double", (part,):
            return as_double(value(part))
        case "String", (part,):
            return as_text(value(part))
        case "Concat", (*parts, str() as delimiter):
            texts = [as_text(value(part)) for part in parts]
            return delimiter.join("<nil>" if each is None else each for each in texts)
    raise AssertionError(tree)


def follow(name: str, key: str, span: Span, event: Event | None) -> Plain:
    if event is not None and not name.startswith(("span.", "resource.", "scope.")):
        of_event: dict[str, Plain] = {
            "name": event.name,
            "time_unix_nano": event.time,
            "attributes": attribute(event.attributes, key),
        }
        return of_event[name]
    of_span: dict[str, Plain] = {
        "name": span.name,
        "kind": span.kind,
        "status.code": span.status,
        "status.message": span.status_message,
        "trace_id": span.trace_id.to_bytes(16, "big"),
        "span_id.string": span.span_id.to_bytes(8, "big").hex(),
        "parent_span_id": span.parent_id.to_bytes(8, "big"),
        "duration": span.end - span.start if span.start and span.end else None,
        "start_time_unix_nano": span.start,
        "flags": span.flags,
        "attributes": attribute(span.attributes, key),
        "resource.attributes": attribute(span.resource, key),
        "scope.name": span.scope_name,
    }
    return of_span[name.removeprefix("span.")]


def attribute(attributes: Attributes, key: str) -> Plain:
    value: Value | None = attributes.get(key)
    if isinstance(value, list | dict | bytes):
        return Opaque(type(value))
    return None if isinstance(value, Empty) else value


def compare(symbol: str, left: Plain, right: Plain) -> bool:
    if symbol == "!=":
        return not compare("==", left, right)
    if left is None and right is None:
        return "=" in symbol
    if is_number(left) and is_number(right):
        return ORDERS[symbol](left, right)
    types = [value.type if isinstance(value, Opaque) else type(value) for value in (left, right)]
    if types[0] is not types[1]:
        return False
    if isinstance(left, Opaque) or isinstance(right, Opaque):
        if types[0] is bytes or symbol == "==":
            raise Failed
        return False
    if isinstance(left, str) and isinstance(right, str):
        return ORDERS[symbol](left.encode(), right.encode())
    return ORDERS[symbol](left, right)


def is_number(value: Plain) -> bool:
    return type(value) in (int, float)


def calculate(symbol: str, left: Plain, right: Plain) -> int | float:
    if not is_number(left) or not is_number(right) or (symbol == "/" and right == 0):
        raise Failed
    if type(left) is int and type(right) is int:
        if symbol == "/":
            size = abs(left) // abs(right)
            return wrapped(size if (left < 0) == (right < 0) else -size)
        return wrapped({"+": left + right, "-": left - right, "*": left * right}[symbol])
    assert isinstance(left, int | float)
    assert isinstance(right, int | float)
    x, y = float(left), float(right)
    return x / y if symbol == "/" else {"+": x + y, "-": x - y, "*": x * y}[symbol]


def wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def as_string(value: Plain) -> str:
    if not isinstance(value, str):
        raise Failed
    return value


def as_text(value: Plain) -> str | None:
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            if math.isnan(value):
                return "NaN"
            if math.isinf(value):
                return "+Inf" if value > 0 else "-Inf"
            return np.format_float_positional(value, unique=True, trim="-")
        case bytes():
            return value.hex()
    raise Failed


def as_integer(value: Plain) -> int | None:
    match value:
        case None:
            return None
        case bool() | int():
            return int(value)
        case float():
            if not -(2.0**63) <= value < 2.0**63:
                raise Failed
            return int(value)
        case str():
            number = int(value) if re.fullmatch("[+-]?[0-9]+", value, re.ASCII) else None
            return number if number is not None and -(2**63) <= number < 2**63 else None
    raise Failed


def as_double(value: Plain) -> float | None:
    match value:
        case None:
            return None
        case bool() | int() | float():
            return float(value)
        case str():
            if not re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?", value, re.ASCII):
                raise Failed
            return float(value)
    raise Failed
