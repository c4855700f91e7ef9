"""The language of table templates: the part of Jinja whose cost is known before it runs.

An allow-list over the syntax tree says what a template may contain. It is checked before anything is compiled or
computed (Jinja evaluates constants while it compiles): fields, literals, ``if``, the operators below, and the filters,
tests and methods that are named here. There are no loops, macros, assignments, includes or powers, so each part of a
template runs at most once. What the parts make of an event's values is bounded where it is made: no text grows past
``MAX_TEXT``, no number past ``MAX_BITS``. Over a limit the record fails with a message; nothing is cut off.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from functools import wraps
from typing import Any

import jinja2
from jinja2 import filters, nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import SandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_SOURCE = 4096
"""Characters of a template."""
MAX_PARTS = 400
MAX_DEPTH = 40
"""How deep its parts may be nested; Jinja and Python walk them by recursion."""
MAX_TEXT = 65_536
"""Characters of any text that it makes, intermediate or final. A text joined from parts is measured when it is
complete: there are at most ``MAX_PARTS`` of them."""
MAX_BITS = 256
"""Of any whole number."""
MAX_TIME_FORMAT = 256
MAX_DIGITS = 15
MAX_WIDTH = 64

_STATEMENTS = (nodes.Output, nodes.TemplateData, nodes.If)
_EXPRESSIONS = (
    nodes.Name, nodes.Const, nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.List, nodes.Tuple, nodes.Keyword,
    nodes.Filter, nodes.Test, nodes.Call, nodes.CondExpr, nodes.And, nodes.Or, nodes.Not, nodes.Compare, nodes.Operand,
    nodes.Concat, nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Neg, nodes.Pos,
)  # fmt: skip
_FOREIGN = {
    nodes.For: "a loop", nodes.Macro: "a macro", nodes.CallBlock: "a macro", nodes.FilterBlock: "a filter block",
    nodes.Assign: "an assignment", nodes.AssignBlock: "an assignment", nodes.With: "an assignment",
    nodes.Include: "an include", nodes.Import: "an import", nodes.FromImport: "an import", nodes.Extends: "a parent",
    nodes.Block: "a block", nodes.Pow: "a power", nodes.Dict: "a mapping",
}  # fmt: skip
_TEXT_METHODS = frozenset((
    "lower", "upper", "title", "capitalize", "casefold", "swapcase", "strip", "lstrip", "rstrip", "startswith",
    "endswith", "removeprefix", "removesuffix", "replace", "split", "rsplit", "partition", "rpartition", "find",
    "count", "isdigit", "isalpha", "isalnum", "join", "zfill",
))  # fmt: skip
_TIME_METHODS = frozenset(("strftime", "isoformat", "date", "weekday", "isoweekday", "isocalendar", "timestamp"))
_TESTS = frozenset((
    "boolean", "defined", "undefined", "none", "string", "number", "integer", "float", "true", "false", "mapping",
    "sequence", "even", "odd", "divisibleby", "in", "eq", "==", "ne", "!=", "lt", "<", "le", "<=", "gt", ">", "ge",
    ">=", "lessthan", "greaterthan", "equalto", "lower", "upper",
))  # fmt: skip
_CONCAT = "~"
"""A filter with a name that nobody can write: it replaces ``~``, so that its result is measured too."""

_TIME_FORMAT = re.compile(r"(?:[^%]|%[-_0^#]?[A-Za-z%])*", re.DOTALL)
"""Without widths: ``%999999999Y`` would be padded to its width."""


class EventTemplate:
    """A template over the fields of an event. Raises ``ValueError`` if it is not one, or uses more than it may."""

    def __init__(self, source: str) -> None:
        self.tree = _checked(source)
        self._template = _environment.from_string(_Measuring().visit(self.tree))

    @property
    def fields(self) -> frozenset[str]:
        """The top-level fields of the event that it uses."""
        return frozenset(name.name for name in self.tree.find_all(nodes.Name))

    @property
    def needed(self) -> list[tuple[str, ...]]:
        """The paths of the fields that it requires: not those that have a default if they are missing."""
        return list(dict.fromkeys(_needed(self.tree)))

    def render(self, event: Mapping[str, object]) -> str:
        """Raises ``jinja2.TemplateError`` or a Python exception if this event cannot be rendered."""
        text: str = _measure(self._template.render(event))
        return text


def _needed(node: nodes.Node) -> Iterator[tuple[str, ...]]:
    path = field_path(node)
    if path is not None:
        yield path
        return
    if isinstance(node, nodes.Test) and node.name in ("defined", "undefined", "none"):
        return
    if isinstance(node, nodes.Filter) and node.name in ("default", "d"):
        children: Iterable[nodes.Node] = node.args
    elif isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
        children = [node.node.node, *node.args]
    else:
        children = node.iter_child_nodes()
    for child in children:
        yield from _needed(child)


def field_path(node: nodes.Node) -> tuple[str, ...] | None:
    """The path of the field that an expression names; ``None`` if it is something else."""
    if isinstance(node, nodes.Name):
        return (node.name,)
    if isinstance(node, nodes.Getattr) and (outer := field_path(node.node)) is not None:
        # Parts of a time are not in the JSON.
        return outer if outer == ("_timestamp",) else (*outer, node.attr)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
        outer = field_path(node.node)
        return None if outer is None else (*outer, node.arg.value)
    return None


def _checked(source: str) -> nodes.Template:
    """The syntax tree of a template that uses only what it may; nothing of it has been evaluated."""
    if len(source) > MAX_SOURCE:
        raise ValueError(f"a template has at most {MAX_SOURCE} characters, this one has {len(source)}")
    try:
        tree = _environment.parse(source)
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(f"'{source}' is not a template: {error.message}") from error
    except (RecursionError, ValueError, OverflowError, MemoryError) as error:
        raise ValueError("a template is too deep, or has a number that is too large") from error
    for count, (node, depth) in enumerate(_walk(tree)):
        if count >= MAX_PARTS or depth > MAX_DEPTH:
            raise ValueError(f"a template has at most {MAX_PARTS} parts, {MAX_DEPTH} deep")
        _check(node)
    return tree


def _walk(tree: nodes.Template) -> Iterator[tuple[nodes.Node, int]]:
    waiting: list[tuple[nodes.Node, int]] = [(child, 1) for child in tree.iter_child_nodes()]
    while waiting:
        node, depth = waiting.pop()
        yield node, depth
        waiting += [(child, depth + 1) for child in node.iter_child_nodes()]


def _check(node: nodes.Node) -> None:
    if not isinstance(node, (*_STATEMENTS, *_EXPRESSIONS)):
        what = next((words for kind, words in _FOREIGN.items() if isinstance(node, kind)), type(node).__name__.lower())
        raise ValueError(f"{what} has no place in a table template; it is made of fields, filters and if")
    match node:
        case nodes.Name(name="self"):
            raise ValueError("a template cannot look at itself")
        case nodes.Const():
            _check_constant(node.value)
        case nodes.Filter() if node.node is None or node.name not in _FILTERS:
            raise ValueError(f"a table template has no filter '{node.name}'; there are: {', '.join(sorted(_FILTERS))}")
        case nodes.Test() if node.name not in _TESTS:
            raise ValueError(f"a table template has no test '{node.name}'; there are: {', '.join(sorted(_TESTS))}")
        case nodes.Call() if not isinstance(node.node, nodes.Getattr) or node.node.attr not in _METHODS:
            what = getattr(node.node, "attr", getattr(node.node, "name", "this"))
            raise ValueError(f"a table template cannot call '{what}'; it can: {', '.join(sorted(_METHODS))}")
    if isinstance(node, (nodes.Call, nodes.Filter, nodes.Test)) and (node.dyn_args or node.dyn_kwargs):
        raise ValueError("a table template names the arguments of a call one by one, without * and **")


def _check_constant(value: object) -> None:
    if isinstance(value, int) and value.bit_length() > 63:
        raise ValueError("a number in a table template is too large")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number in a table template is too large")


class _Measuring(NodeTransformer):
    """Turns every ``~`` into a call that measures its result."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        first, *rest = node.nodes
        return nodes.Filter(first, _CONCAT, rest, [], None, None, lineno=node.lineno, environment=_environment)


class _EventEnvironment(SandboxedEnvironment):
    """Jinja over JSON: a missing field is empty, a field wins over a method of the same name, names must be scalars."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%"))

    def __init__(self) -> None:
        super().__init__(undefined=jinja2.ChainableUndefined, finalize=_scalar, optimized=False)
        self.globals.clear()
        self.filters.clear()
        self.filters.update(_FILTERS)
        self.filters[_CONCAT] = _concat
        self.tests = {name: test for name, test in self.tests.items() if name in _TESTS}

    def unsafe_undefined(self, obj: Any, attribute: str) -> jinja2.Undefined:
        """What a template must not access is an error, not an empty name: the record fails with a message."""
        raise SecurityError(f"a template may not use '{attribute}'")

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, dict):
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        for value in (left, right):
            if not isinstance(value, (int, float, jinja2.Undefined)) and not (
                operator == "+" and isinstance(value, str)
            ):
                raise jinja2.TemplateRuntimeError(f"'{operator}' is for numbers, not for {_kind(value)}")
            _measure(value)
        return _measure(_OPERATORS[operator](left, right))

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        owner = getattr(__obj, "__self__", None)
        allowed = _TEXT_METHODS if isinstance(owner, str) else _TIME_METHODS if isinstance(owner, date) else ()
        if getattr(__obj, "__name__", None) not in allowed:
            if isinstance(__obj, jinja2.Undefined):
                return __obj()  # says what is missing
            raise SecurityError(f"a template may not call a method of {_kind(owner)}")
        for value in (owner, *args, *kwargs.values()):
            _measure(value)
        if __obj.__name__ in _GROWING:
            return _GROWING[__obj.__name__](owner, *args, **kwargs)
        if __obj.__name__ == "join":
            return _join(args[0], owner)
        if __obj.__name__ == "strftime":
            _check_time_format(*args, **kwargs)
        return _measure(__obj(*args, **kwargs))


def _scalar(value: object) -> object:
    """What may be printed."""
    if value is None:
        return ""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, (str, int, float, jinja2.Undefined)):
        return _measure(value)
    raise jinja2.TemplateRuntimeError(f"a name is made of text and numbers, not of a {type(value).__name__}")


def _measure(value: Any) -> Any:
    """The value, unless it is too large."""
    if isinstance(value, (str, list, tuple)) and len(value) > MAX_TEXT:
        raise _too_large()
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise jinja2.TemplateRuntimeError("a number is too large")
    return value


def _too_large() -> jinja2.TemplateRuntimeError:
    return jinja2.TemplateRuntimeError(f"a value has more than {MAX_TEXT} characters or items")


def _kind(value: object) -> str:
    return "text" if isinstance(value, str) else f"a {type(value).__name__}"


def _check_time_format(format: str) -> None:
    if len(format) > MAX_TIME_FORMAT:
        raise jinja2.TemplateRuntimeError(f"a format of a time has at most {MAX_TIME_FORMAT} characters")
    if _TIME_FORMAT.fullmatch(format) is None:
        raise jinja2.TemplateRuntimeError("a format of a time is text and directives such as %Y, without widths")


def _concat(*values: object) -> str:
    text: str = _measure("".join([str(_measure(value)) for value in values]))
    return text


def _replace(text: object, old: object, new: object, count: int | None = None) -> str:
    """As in Jinja and Python, but measured before it is made: each of many places may grow a lot."""
    whole, before, after = str(text), str(old), str(new)
    places = whole.count(before)
    places = places if count is None or count < 0 else min(count, places)
    if len(whole) + places * (len(after) - len(before)) > MAX_TEXT:
        raise _too_large()
    return whole.replace(before, after, -1 if count is None else count)


def _join(values: Iterable[object], between: object = "") -> str:
    texts, separator = [str(value) for value in values], str(between)
    if sum(map(len, texts)) + len(separator) * len(texts) > MAX_TEXT:
        raise _too_large()
    return separator.join(texts)


def _round(value: Any, precision: int = 0, method: str = "common") -> Any:
    if not -MAX_DIGITS <= precision <= MAX_DIGITS:
        raise jinja2.TemplateRuntimeError(f"a number is rounded to at most {MAX_DIGITS} digits")
    return filters.do_round(value, precision, method)  # type: ignore[arg-type]


def _zfill(text: str, width: int) -> str:
    if width > MAX_WIDTH:
        raise jinja2.TemplateRuntimeError(f"a text is filled up to at most {MAX_WIDTH} characters")
    return text.zfill(width)


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter with bounded arguments and result."""

    @wraps(function)  # with the mark that Jinja puts on filters that want its environment
    def bounded(*args: Any, **kwargs: Any) -> Any:
        for given in (*args, *kwargs.values()):
            _measure(given)
        return _measure(function(*args, **kwargs))

    return bounded


_METHODS = _TEXT_METHODS | _TIME_METHODS
_GROWING: Mapping[str, Callable[..., Any]] = {"replace": _replace, "zfill": _zfill}
"""Methods of text whose result can be much larger than what they are given."""
_FILTERS: Mapping[str, Callable[..., Any]] = {
    **{
        name: _bounded(filters.FILTERS[name])
        for name in (
            "abs", "capitalize", "count", "d", "default", "first", "float", "int", "last", "length", "lower", "string",
            "title", "trim", "truncate", "upper",
        )
    },
    "join": _bounded(_join),
    "replace": _bounded(_replace),
    "round": _bounded(_round),
}  # fmt: skip
_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
_environment = _EventEnvironment()
