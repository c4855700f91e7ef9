"""From SQL text to a tree, or a ``ValueError`` that names the piece that is wrong or not supported, and where it is.

sqlglot reads the text in Spark's dialect. It is imported when an expression is read and not before: only pipelines with
one pay for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.json.compare_numbers import number_key
from penstock.json.paths import Path
from penstock.steps.expression.tree import Call, Constant, Field, Literal, Node, RecordField, Written

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.errors import ParseError

RECORD_FIELDS = ("namespace", "op", "mode", "key", "timestamp", "partition", "offset")

_OPERATORS = {
    "EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">=", "NullSafeEQ": "<=>",
    "Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%", "And": "and", "Or": "or",
}  # fmt: skip

_FUNCTIONS = {
    "Neg": "negative", "Not": "not", "Lower": "lower", "Upper": "upper", "Length": "length", "Abs": "abs",
}  # fmt: skip

_TYPES = {
    "BOOLEAN": "boolean", "TINYINT": "tinyint", "SMALLINT": "smallint", "INT": "int", "BIGINT": "bigint",
    "FLOAT": "double", "DOUBLE": "double", "TEXT": "string", "VARCHAR": "string",
}  # fmt: skip

SUPPORTED = (
    "Supported are = == <> != < <= > >= <=>, and, or, not, in, between, like, rlike, is [not] null, + - * / %, ||, "
    "case when, if, cast, coalesce, lower, upper, length, trim, concat, substring, startswith, endswith, contains, "
    "abs and round."
)


def parse(text: str) -> Node:
    """Read one expression."""
    from sqlglot import exp, parse_one
    from sqlglot.errors import ParseError, TokenError

    if not text.strip():
        raise ValueError("the expression is empty")
    try:
        tree = parse_one(text, read="spark", into=exp.Condition)
    except ParseError as error:
        raise ValueError(syntax_message(text, error)) from error
    except TokenError as error:
        raise ValueError(f"'{text}' cannot be read: a quote or bracket is never closed") from error
    return Reader(text).node(tree)


def syntax_message(text: str, error: ParseError) -> str:
    """Where the parser lost its way, for a person."""
    details = error.errors[0] if error.errors else {}
    near = str(details.get("highlight") or "")
    place = int(details.get("col") or len(text)) - len(near) + 1
    message = f"'{text}' cannot be read " + (f"near '{near}' (character {place})" if near else "at its end")
    if near.isidentifier():
        message += f". A field whose name is a word of SQL goes between backticks: `{near}`"
    return message


class Reader:
    """Turns sqlglot's nodes into ours; one method per form, refusing by name whatever has none."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._forms: dict[str, Callable[[exp.Expr], Node]] = {
            "Column": self._field,
            "Dot": self._field,
            "Bracket": self._field,
            "Literal": self._literal,
            "Boolean": lambda node: Literal(bool(node.this)),
            "Null": lambda node: Literal(None),
            "Paren": lambda node: self.node(node.this),
            "In": self._in,
            "Between": self._between,
            "Is": self._is,
            "NullSafeNEQ": lambda node: Call("not", (Call("<=>", self._nodes([node.this, node.expression])),)),
            "Like": lambda node: self._matching("like", node),
            "RegexpLike": self._regex,
            "Case": self._case,
            "If": self._if,
            "Cast": self._cast,
            "TryCast": self._cast,
            "Trim": self._trim,
            "DPipe": lambda node: Call("concat", self._nodes([node.this, node.expression])),
            "Concat": lambda node: Call("concat", self._nodes(node.expressions)),
            "Coalesce": lambda node: Call("coalesce", self._nodes([node.this, *node.expressions])),
            "Substring": self._substring,
            "Round": self._round,
            "StartsWith": lambda node: self._matching("startswith", node),
            "EndsWith": lambda node: self._matching("endswith", node),
            "Contains": lambda node: self._matching("contains", node),
        }

    def node(self, node: exp.Expr) -> Node:
        form = type(node).__name__
        if form in _OPERATORS:
            return Call(_OPERATORS[form], self._nodes([node.this, node.expression]))
        if form in _FUNCTIONS:
            argument = self.node(node.this)
            if form == "Neg" and isinstance(argument, Literal):
                if isinstance(argument.value, Written):
                    return _negated(argument.value.text)
                if type(argument.value) in (int, float):
                    return _negated(repr(argument.value))
            return Call(_FUNCTIONS[form], (argument,))
        if form not in self._forms:
            raise self.refusal(node, f"is not supported. {SUPPORTED}")
        return self._forms[form](node)

    def _nodes(self, nodes: Sequence[exp.Expr]) -> tuple[Node, ...]:
        return tuple(self.node(node) for node in nodes)

    def refusal(self, node: exp.Expr, why: str) -> ValueError:
        """An error that names a piece of the text and where it is."""
        places = [inner.meta["start"] for inner in node.walk() if "start" in inner.meta]
        where = f" (character {min(places) + 1})" if places else ""
        return ValueError(f"'{node.sql('spark')}'{where} {why}")

    def _field(self, node: exp.Expr) -> Node:
        path, quoted = self._path(node)
        if path[0] != "record" or quoted:
            return Field(path)
        if len(path) == 3 and path[1] == "headers":
            return RecordField("headers", path[2])
        if len(path) == 2 and path[1] in RECORD_FIELDS:
            return RecordField(path[1])
        known = ", ".join(f"record.{name}" for name in (*RECORD_FIELDS, "headers.<name>"))
        raise self.refusal(
            node, f"is no field of the record. Known: {known}. A field of the data called record: `record`"
        )

    def _path(self, node: exp.Expr) -> tuple[Path, bool]:
        """The keys, and whether the first one was quoted."""
        form = type(node).__name__
        if form == "Column":
            parts = [node.args[part] for part in ("catalog", "db", "table", "this") if node.args.get(part)]
            if any(type(part).__name__ != "Identifier" for part in parts):
                raise self.refusal(node, "is not a field")
            return tuple(part.name for part in parts), bool(parts[0].args.get("quoted"))
        if form == "Dot" and type(node.expression).__name__ == "Identifier":
            path, quoted = self._path(node.this)
            return (*path, node.expression.name), quoted
        if form == "Bracket" and len(node.expressions) == 1 and node.expressions[0].is_string:
            path, quoted = self._path(node.this)
            return (*path, node.expressions[0].name), quoted
        raise self.refusal(node, "is not supported: paths lead through objects, by name")

    def _literal(self, node: exp.Expr) -> Node:
        if node.is_string:
            return Literal(str(node.this))
        return _number(str(node.this))

    def _constant(self, node: exp.Expr, *wanted: type) -> Constant:
        found = self.node(node)
        if isinstance(found, Literal) and type(found.value) in wanted:
            return found.value
        raise self.refusal(node, f"must be a plain {'number' if int in wanted else 'text'} here, not computed")

    def _in(self, node: exp.Expr) -> Node:
        if not node.expressions:
            raise self.refusal(node, "is not supported: give a list of values, as in country in ('DE', 'FR')")
        return Call("in", self._nodes([node.this, *node.expressions]))

    def _between(self, node: exp.Expr) -> Node:
        if node.args.get("symmetric"):
            raise self.refusal(node, "is not supported: write it without symmetric")
        value = self.node(node.this)
        low, high = self._nodes([node.args["low"], node.args["high"]])
        return Call("and", (Call(">=", (value, low)), Call("<=", (value, high))))

    def _is(self, node: exp.Expr) -> Node:
        value = self.node(node.this)
        wanted = self.node(node.expression)
        if wanted == Literal(None):
            return Call("isnull", (value,))
        if isinstance(wanted, Literal) and isinstance(wanted.value, bool):
            return Call("<=>", (value, wanted))
        raise self.refusal(node, "is not supported: is takes null, true or false")

    def _regex(self, node: exp.Expr) -> Node:
        import pyarrow as pa
        import pyarrow.compute as pc

        pattern = self._constant(node.expression, str)
        try:
            pc.match_substring_regex(pa.array([""]), pattern)
        except pa.ArrowInvalid as error:
            reason = str(error).removeprefix("Invalid regular expression: ")
            raise self.refusal(node.expression, f"is not a regular expression of RE2: {reason}") from error
        return Call("rlike", (self.node(node.this),), (pattern,))

    def _case(self, node: exp.Expr) -> Node:
        subject = node.args.get("this")
        arguments: list[Node] = []
        for branch in node.args["ifs"]:
            condition = self.node(branch.this)
            if subject is not None:
                condition = Call("=", (self.node(subject), condition))
            arguments += [condition, self.node(branch.args["true"])]
        default = node.args.get("default")
        return Call("case", (*arguments, self.node(default) if default is not None else Literal(None)))

    def _if(self, node: exp.Expr) -> Node:
        otherwise = node.args.get("false")
        return Call(
            "case",
            (*self._nodes([node.this, node.args["true"]]), self.node(otherwise) if otherwise else Literal(None)),
        )

    def _cast(self, node: exp.Expr) -> Node:
        target = node.args["to"]
        kind = _TYPES.get(target.this.name)
        if kind is None or target.expressions or node.args.get("format"):
            known = ", ".join(dict.fromkeys(_TYPES.values()))
            raise self.refusal(node, f"is not supported: cast to one of {known}")
        return Call("cast", (self.node(node.this),), (kind,))

    def _trim(self, node: exp.Expr) -> Node:
        if node.args.get("expression") or node.args.get("collation"):
            raise self.refusal(node, "is not supported: trim takes spaces only")
        side = str(node.args.get("position") or "BOTH").upper()
        return Call({"LEADING": "ltrim", "TRAILING": "rtrim"}.get(side, "trim"), (self.node(node.this),))

    def _substring(self, node: exp.Expr) -> Node:
        start = self._constant(node.args["start"], int)
        length = node.args.get("length")
        constants = (start, self._constant(length, int)) if length is not None else (start,)
        return Call("substring", (self.node(node.this),), constants)

    def _round(self, node: exp.Expr) -> Node:
        decimals = node.args.get("decimals")
        digits = self._constant(decimals, int) if decimals is not None else 0
        if not isinstance(digits, int) or abs(digits) > 15:
            raise self.refusal(node, "is not supported: round to at most 15 digits")
        return Call("round", (self.node(node.this),), (digits,))

    def _matching(self, name: str, node: exp.Expr) -> Node:
        return Call(name, (self.node(node.this),), (self._constant(node.expression, str),))


def _negated(text: str) -> Literal:
    return _number(text[1:] if text.startswith("-") else f"-{text}")


def _number(text: str) -> Literal:
    """An integer or a double if that is what is written, to the last digit."""
    if text.lstrip("-").isdigit() and len(text) < 30 and -(2**63) <= int(text) < 2**63:
        return Literal(int(text))
    value = float(text)
    same = math.isfinite(value) and number_key(repr(value)) == number_key(text)
    return Literal(value if same else Written(text))
