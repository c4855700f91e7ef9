"""The syntax tree while the parser reads: one method per form of the grammar."""

from __future__ import annotations

from dataclasses import dataclass

from lark import Token, Transformer, v_args

from penstock.sampling.conditions.ottl.condition_error import Misread
from penstock.sampling.conditions.ottl.literals import read_bytes, read_double, read_integer, unquote
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


@v_args(inline=True)
class TreeBuilder(Transformer[Token, Written]):
    """Its methods get what the rules of the same name consist of: tokens, and what other methods have made."""

    def disjunction(self, *parts: Written) -> Written:
        return Joined("or", parts, parts[0].at)

    def conjunction(self, *parts: Written) -> Written:
        return Joined("and", parts, parts[0].at)

    def negated(self, word: Token, part: Written) -> Written:
        return Negated(part, _place(word))

    def comparison(self, left: Written, symbol: Token, right: Written) -> Written:
        return Comparison(str(symbol), left, right, left.at)

    def sum(self, first: Written, *others: Written | Token) -> Written:
        symbols, values = map(str, others[::2]), others[1::2]
        return Calculation(first, tuple(zip(symbols, values, strict=True)), first.at)  # type: ignore[arg-type]

    product = sum

    def with_sign(self, sign: Token, part: Written) -> Written:
        if sign == "+":
            return part
        # Not of a number that has a sign already: the smallest integer has no counterpart.
        match part:
            case Literal(value=int() | float() as number) if not isinstance(number, bool) and number >= 0:
                return Literal(-number, _place(sign))
        return Minus(part, _place(sign))

    def string(self, token: Token) -> Written:
        return Literal(unquote(str(token), _place(token)), _place(token))

    def octets(self, token: Token) -> Written:
        return Literal(read_bytes(str(token), _place(token)), _place(token))

    def double(self, token: Token) -> Written:
        return Literal(read_double(str(token), _place(token)), _place(token))

    def integer(self, token: Token) -> Written:
        return Literal(read_integer(str(token), _place(token)), _place(token))

    def true(self, token: Token) -> Written:
        return Literal(True, _place(token))

    def false(self, token: Token) -> Written:
        return Literal(False, _place(token))

    def nil(self, token: Token) -> Written:
        return Literal(None, _place(token))

    def enum(self, token: Token) -> Written:
        return Enum(str(token), _place(token))

    def names(self, *names: Token) -> tuple[Token, ...]:
        return names

    def path(self, names: tuple[Token, ...], *keys: Key) -> Written:
        return Path(tuple(map(str, names)), tuple(key.value for key in keys), _place(names[0]))

    def key(self, opening: Token, key: Written) -> Key:
        return Key(key, _place(opening))

    def call(self, name: Token, *parts: Written | Key) -> Written:
        arguments = tuple(part for part in parts if not isinstance(part, Key))
        return Call(str(name), arguments, _place(name), indexed=len(arguments) < len(parts))

    def named_argument(self, name: Token, _: Written) -> Written:
        raise Misread(_place(name), f"named arguments are not supported: write the value alone, without `{name} =`")

    def list_of(self, opening: Token, *items: Written) -> Written:
        return ListOf(items, _place(opening))


@dataclass(frozen=True)
class Key:
    """What stands in brackets behind something."""

    value: Written
    at: int


def _place(token: Token) -> int:
    return token.start_pos or 0
