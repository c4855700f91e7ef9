"""From the text of a condition to its syntax tree, or a ``ValueError`` that says where it cannot be read.

The tree is built while the parser reads, without recursion; brackets are the only thing that nests, so counting them
bounds how deep all that follows may recurse.
"""

from __future__ import annotations

from functools import cache

from lark import Lark, UnexpectedInput, UnexpectedToken

from penstock.sampling.conditions.ottl.build_tree import TreeBuilder
from penstock.sampling.conditions.ottl.condition_error import Misread, condition_error
from penstock.sampling.conditions.ottl.syntax_tree import Written

LONGEST_TEXT = 10_000
DEEPEST_NESTING = 64

GRAMMAR = r"""
?start: disjunction

?disjunction: conjunction ("or" conjunction)*
?conjunction: negation ("and" negation)*
?negation: comparison
    | NOT comparison -> negated
?comparison: sum (COMPARISON sum)?
?sum: product (SIGN product)*
?product: signed (TIMES signed)*
?signed: atom
    | SIGN atom -> with_sign

?atom: STRING -> string
    | BYTES -> octets
    | FLOAT -> double
    | INT -> integer
    | TRUE -> true
    | FALSE -> false
    | NIL -> nil
    | CAPITALIZED -> enum
    | names key* -> path
    | (CAPITALIZED | NAME) "(" (argument ("," argument)*)? ")" key* -> call
    | OPENING (disjunction ("," disjunction)*)? "]" -> list_of
    | "(" disjunction ")"

names: NAME ("." NAME)*
?argument: disjunction
    | NAME "=" disjunction -> named_argument
key: OPENING disjunction "]"

NOT: "not"
TRUE: "true"
FALSE: "false"
NIL: "nil"
OPENING: "["
STRING: /"(\\.|[^\\"])*"/s
BYTES.3: /0x[0-9a-fA-F]+/
FLOAT.2: /[0-9]*\.[0-9]+([eE][-+]?[0-9]+)?/
INT.1: /[0-9]+/
COMPARISON: "==" | "!=" | "<=" | ">=" | "<" | ">"
SIGN: "+" | "-"
TIMES: "*" | "/"
CAPITALIZED: /[A-Z][A-Za-z0-9_]*/
NAME: /[a-z][a-z0-9_]*/
%ignore /[ \t\r\n]+/
"""


def parse_condition(text: str) -> Written:
    """Read one condition."""
    if not text.strip():
        raise ValueError("the condition is empty")
    if len(text) > LONGEST_TEXT:
        raise condition_error(text, LONGEST_TEXT, f"a condition has at most {LONGEST_TEXT:,} characters")
    try:
        _check_nesting(text)
        written: Written = _parser().parse(text)  # type: ignore[assignment]  # it builds our tree
    except UnexpectedInput as error:
        raise condition_error(text, *_trouble(text, error)) from error
    except Misread as error:
        raise condition_error(text, error.at, error.why) from error
    return written


def _check_nesting(text: str) -> None:
    depth = 0
    for token in _parser().lex(text):
        depth += (token in ("(", "[")) - (token in (")", "]"))
        if depth > DEEPEST_NESTING:
            raise Misread(token.start_pos or 0, f"brackets nest deeper than {DEEPEST_NESTING}")


@cache
def _parser() -> Lark:
    return Lark(GRAMMAR, parser="lalr", lexer="basic", transformer=TreeBuilder(), maybe_placeholders=False)


def _trouble(text: str, error: UnexpectedInput) -> tuple[int, str]:
    if isinstance(error, UnexpectedToken):
        if error.token.type == "$END":
            return len(text), "the condition ends too early"
        return error.token.start_pos or 0, f"`{error.token}` cannot stand here"
    at = error.pos_in_stream or 0
    if text[at] == '"':
        return at, "the quote is never closed"
    return at, f"`{text[at]}` cannot stand here"
