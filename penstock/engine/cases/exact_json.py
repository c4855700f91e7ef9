"""JSON whose numbers keep their text, for cases: compared exactly, and shown as written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn

from penstock.config.document import real
from penstock.json.compare_numbers import as_json, number_key


class Real(float):
    """A number with a fraction or an exponent that knows its own text. As a float it may have lost digits."""

    text: str

    def __new__(cls, text: str) -> Real:
        number = super().__new__(cls, real(text))
        # What YAML calls .inf and .nan stays so, and is no JSON.
        number.text = as_json(text) if text[-1].isdigit() or text[-1] == "." else text
        return number


def read(text: str) -> object:
    """The value of a JSON text. Raises ``ValueError`` if it is not JSON."""
    return json.loads(text, parse_float=Real, parse_constant=_refuse)


def write(value: object) -> str:
    """The value as JSON text in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_word(key)}: {write(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(write, value)) + "]"
    return value.text if isinstance(value, Real) else _word(value)


class Line(str):
    """A line of JSON. Two are equal if their values are."""

    meaning: str

    def __new__(cls, text: str, meaning: str | None = None) -> Line:
        line = super().__new__(cls, text)
        line.meaning = text if meaning is None else meaning
        return line

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Line) and self.meaning == other.meaning

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.meaning)


def lines(value: Any, before: str = "", after: str = "", depth: int = 0) -> Iterator[Line]:
    """The value as indented JSON, keys sorted, between ``before`` and ``after``."""
    indent = "  " * depth
    if isinstance(value, (dict, list)) and value:
        first, last = "{}" if isinstance(value, dict) else "[]"
        members = sorted(value.items()) if isinstance(value, dict) else [(None, each) for each in value]
        yield Line(f"{indent}{before}{first}")
        for place, (key, each) in enumerate(members, 1):
            name = "" if key is None else f"{_word(key)}: "
            yield from lines(each, name, "," if place < len(members) else "", depth + 1)
        yield Line(f"{indent}{last}{after}")
        return
    text = write(value)
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and text[-1].isdigit()
    yield Line(f"{indent}{before}{text}{after}", f"{indent}{before}{number_key(text) if number else text}{after}")


def _word(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
