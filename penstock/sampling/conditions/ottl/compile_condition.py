"""From the text of a condition to what answers it. What is not supported is a ``ValueError`` that names it."""

from __future__ import annotations

from penstock.sampling.conditions.ottl.condition_error import Misread, condition_error
from penstock.sampling.conditions.ottl.condition_rows import Test, Value
from penstock.sampling.conditions.ottl.expressions import (
    AllOf,
    Always,
    AnyOf,
    AsValue,
    Calculated,
    Compared,
    Given,
    NotTrue,
    negated_value,
)
from penstock.sampling.conditions.ottl.function_calls import TestFunction, find_function
from penstock.sampling.conditions.ottl.parse_condition import parse_condition
from penstock.sampling.conditions.ottl.path_values import Context, find_path
from penstock.sampling.conditions.ottl.syntax_tree import (
    Calculation,
    Call,
    Comparison,
    Enum,
    Joined,
    ListOf,
    Literal,
    Minus,
    Negated,
    Path,
    Written,
)

ENUMS = {
    "SPAN_KIND_UNSPECIFIED": 0,
    "SPAN_KIND_INTERNAL": 1,
    "SPAN_KIND_SERVER": 2,
    "SPAN_KIND_CLIENT": 3,
    "SPAN_KIND_PRODUCER": 4,
    "SPAN_KIND_CONSUMER": 5,
    "STATUS_CODE_UNSET": 0,
    "STATUS_CODE_OK": 1,
    "STATUS_CODE_ERROR": 2,
}
_INT_END = 2**63


def compile_condition(text: str, context: Context) -> Test:
    """Read one condition."""
    written = parse_condition(text)
    try:
        return _Compiler(context).test(written)
    except Misread as error:
        raise condition_error(text, error.at, error.why) from error


class _Compiler:
    """Reads each form as a test, or as a value, whichever is asked for where it stands."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def test(self, written: Written) -> Test:
        match written:
            case Joined(word="or", parts=parts):
                return AnyOf(tuple(map(self.test, parts)))
            case Joined(parts=parts):
                return AllOf(tuple(map(self.test, parts)))
            case Negated(part=part):
                return NotTrue(self.test(part))
            case Comparison(symbol=symbol, left=left, right=right):
                return Compared(symbol, self.value(left), self.value(right))
            case Literal(value=bool() as answer):
                return Always(answer)
            case Call():
                function = find_function(written)
                if isinstance(function, TestFunction):
                    return function.make(written, self.value)
        raise Misread(written.at, f"{_described(written)} alone is no condition: compare it, as in `... == true`")

    def value(self, written: Written) -> Value:
        match written:
            case Literal(value=int() as number, at=at) if not -_INT_END <= number < _INT_END:
                raise Misread(at, f"`{number}` is no integer of 64 bits")
            case Literal(value=value):
                return Given(value)
            case Enum(name=name, at=at):
                return Given(_enum(name, at))
            case Path():
                return self._path(written)
            case Call():
                function = find_function(written)
                if isinstance(function, TestFunction):
                    return AsValue(function.make(written, self.value))
                return function.make(written, self.value)
            case Calculation(first=first, others=others):
                return Calculated(self.value(first), tuple((symbol, self.value(part)) for symbol, part in others))
            case Minus(part=part):
                return negated_value(self.value(part))
        raise Misread(written.at, f"{_described(written)} has no value that can be used here")

    def _path(self, path: Path) -> Value:
        keys = [key.value if isinstance(key, Literal) else None for key in path.keys]
        if len(keys) > 1:
            raise Misread(path.at, f"path `{path.dotted}` takes one key: what is inside a value cannot be looked at")
        key = keys[0] if keys else None
        if keys and not isinstance(key, str):
            raise Misread(path.keys[0].at, f"the key of `{path.dotted}` must be a text between quotes")
        try:
            return find_path(self._context, path.dotted, key if isinstance(key, str) else None)
        except LookupError as error:
            raise Misread(path.at, str(error.args[0])) from error


def _enum(name: str, at: int) -> int:
    if name not in ENUMS:
        raise Misread(at, f"enum `{name}` is not supported; supported: {', '.join(ENUMS)}")
    return ENUMS[name]


def _described(written: Written) -> str:
    match written:
        case Path(dotted=dotted):
            return f"path `{dotted}`"
        case Call(name=name):
            return f"function `{name}`"
        case Enum(name=name):
            return f"enum `{name}`"
        case ListOf():
            return "a list"
        case Literal():
            return "a literal"
        case Calculation() | Minus():
            return "a calculation"
    return "a condition"
