"""Reads JSON without rewriting it: whether a text is JSON, and where in its bytes the parts are.

Events are kept byte for byte (``2.50`` stays ``2.50``, key order, repeated keys and odd escapes survive), so a parsed
value is only looked at, and changes are cut into the text at the places that this module finds. ``parse`` decides what
is JSON (RFC 8259 in UTF-8). The others assume a text that ``parse`` has accepted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import orjson

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None

BOM = b"\xef\xbb\xbf"
WHITESPACE = b" \t\r\n"


class NotJson(ValueError):
    """The text is not JSON; the message says what is wrong and where."""


def parse(text: bytes) -> Json:
    """The value of a JSON text, for inspection only: numbers may be rounded and lone surrogates kept."""
    try:
        value: Json = orjson.loads(text)
    except orjson.JSONDecodeError:
        return _parse_leniently(text)
    return value


def _parse_leniently(text: bytes) -> Json:
    """Parse JSON that the fast parser refuses: lone surrogates, numbers beyond a double."""
    try:
        value: Json = DECODER.decode(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise NotJson(f"not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise NotJson("nested too deeply") from None
    except json.JSONDecodeError as error:
        raise NotJson(f"not JSON: {error.msg} at line {error.lineno} column {error.colno}") from None
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise NotJson(f"not JSON: {name} is not a JSON number")


# `bool` replaces the number parsers: nobody needs the value, and it has no limit on digits.
DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=bool, parse_float=bool)


def kind_of(value: Json) -> str:
    """The kind of a value, in words for a message."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case list():
            return "an array"
        case dict():
            return "an object"
        case _:
            return "a number"


class Span(NamedTuple):
    start: int
    end: int


class Member(NamedTuple):
    """One ``"key": value`` of an object: where the key starts, and where the value is."""

    key: str
    start: int
    value: Span


def elements(array: bytes) -> Iterator[Span]:
    """Where the elements of an array are."""
    # One character per byte keeps positions in the text and in the bytes the same; structure is ASCII anyway.
    text = array.decode("latin-1")
    position = _past_whitespace(array, _past_whitespace(array, 0) + 1)
    while array[position] != _CLOSE_ARRAY:
        try:
            _, end = DECODER.raw_decode(text, position)
        except RecursionError:
            raise NotJson("nested too deeply") from None
        yield Span(position, end)
        position = _past_whitespace(array, end)
        if array[position] == _COMMA:
            position = _past_whitespace(array, position + 1)


def members(text: bytes) -> list[Member]:
    """The members of an object, in order, repeated keys included. Walks tokens, so depth does not matter."""
    found: list[Member] = []
    depth = 0
    key: str | None = None
    key_start = value_start = 0
    for token in _TOKEN.finditer(text):
        kind = text[token.start()]
        if depth == 1:
            if key is None and kind == _QUOTE:
                key, key_start = _decoded_key(token.group()), token.start()
            elif kind == _COLON:
                value_start = _past_whitespace(text, token.end())
            elif kind in (_COMMA, _CLOSE_OBJECT) and key is not None:
                found.append(Member(key, key_start, Span(value_start, _before_whitespace(text, token.start()))))
                key = None
        if kind in _OPENERS:
            depth += 1
        elif kind in _CLOSERS:
            depth -= 1
    return found


@dataclass(frozen=True, slots=True)
class Branch:
    """A member of an object, and the members of its value if that is an object too."""

    start: int
    value: Span
    inner: Mapping[str, Branch] | None


def tree(text: bytes, levels: int) -> dict[str, Branch]:
    """The members of an object and of the objects in it, so many levels down; in one pass, whatever the depth. A
    repeated key counts with its last value."""
    root: dict[str, Branch] = {}
    # Open objects: their members so far, the key at hand, where it starts, where its value does, that value's members.
    stack: list[tuple[dict[str, Branch], str | None, int, int]] = []
    members: dict[str, Branch] | None = None
    key: str | None = None
    key_start = value_start = 0
    inner: dict[str, Branch] | None = None
    skipped = 0  # containers around this place, inside the innermost object that we keep
    for token in _TOKEN.finditer(text):
        kind = text[token.start()]
        if kind in _OPENERS:
            if kind == _OPEN_OBJECT and not skipped and len(stack) < levels:
                if members is None:
                    members = root
                else:
                    stack.append((members, key, key_start, value_start))
                    members, key = {}, None
                inner = None
            else:
                skipped += 1
        elif skipped:
            skipped -= kind in _CLOSERS
        elif kind == _QUOTE:
            if key is None:
                key, key_start = _decoded_key(token.group()), token.start()
        elif kind == _COLON:
            value_start = _past_whitespace(text, token.end())
        else:  # a comma or the end of the object
            assert members is not None
            if key is not None:
                end = _before_whitespace(text, token.start())
                members[key] = Branch(key_start, Span(value_start, end), inner)
                key, inner = None, None
            if kind == _CLOSE_OBJECT and stack:
                inner = members
                members, key, key_start, value_start = stack.pop()
    return root


def _decoded_key(quoted: bytes) -> str:
    if b"\\" not in quoted:
        return quoted[1:-1].decode("utf-8")
    key: str = json.loads(quoted)
    return key


def _past_whitespace(text: bytes, position: int) -> int:
    while text[position] in WHITESPACE:
        position += 1
    return position


def _before_whitespace(text: bytes, position: int) -> int:
    while text[position - 1] in WHITESPACE:
        position -= 1
    return position


# Nothing is tried twice, and a string that does not close is one token up to the end: else text that is no JSON would
# take time by the square of its length.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[{}\[\],:]', re.DOTALL)
_QUOTE, _COLON, _COMMA, _CLOSE_OBJECT, _CLOSE_ARRAY = b'":,}]'
_OPEN_OBJECT = ord("{")
_OPENERS = frozenset(b"{[")
_CLOSERS = frozenset(b"}]")
