"""JSON whose numbers keep their digits: a number that is read is written again as it was."""

from __future__ import annotations

import json
import math
import re
from typing import Any

_MANY_DIGITS = re.compile(rb"(?:^|[:\[,\s])-?\d(?:\.?\d){15}")
_LONG = 300
"""Digits of an integer that may be beyond a double."""


class WrittenNumber(float):
    """A number as it is written. To templates it is a double that prints as it is written; for the rest its digits
    count."""

    text: str

    def __new__(cls, text: str) -> WrittenNumber:
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def has_long_numbers(data: bytes) -> bool:
    """Whether there may be a number that a double, or 64 bits, cannot hold as it is written."""
    return _MANY_DIGITS.search(data) is not None


def loads(text: str | bytes) -> Any:
    """Raises ``ValueError`` for what is not JSON."""
    return json.loads(text, parse_constant=_refuse, parse_float=WrittenNumber, parse_int=_integer)


def dumps(value: Any) -> str:
    """Raises ``ValueError`` for a number that no double can hold, not even roughly: nobody could read it."""
    if isinstance(value, WrittenNumber):
        if not math.isfinite(value):
            raise ValueError("a number is too large for a double")
        return value.text
    if isinstance(value, dict):
        return "{" + ",".join(f"{dumps(key)}:{dumps(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(dumps, value)) + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _integer(text: str) -> int | WrittenNumber:
    return WrittenNumber(text) if len(text) >= _LONG or text == "-0" else int(text)
