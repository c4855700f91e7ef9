"""JSON for a user's function, with numbers that come out as they were written unless the function changes them."""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

_TOKEN = secrets.token_hex(8)
_PLACE = re.compile(f'"{_TOKEN}:([^"]+)"')


class WrittenFloat(float):
    """A number that a float spells otherwise, or cannot hold. What is computed from it is a plain float."""

    written: str

    def __new__(cls, text: str | float) -> WrittenFloat:
        number = super().__new__(cls, text)
        number.written = str(text)
        return number


class JsonNumbers:
    """Reads and writes the documents of one batch."""

    def __init__(self) -> None:
        self._differ = False

    def read(self, data: bytes) -> Any:
        # A zero with a sign is the one whole number that Python spells otherwise.
        return json.loads(data, parse_float=self._float, parse_int=self._int if b"-0" in data else None)

    def write(self, value: object) -> bytes:
        shown = _with_places(value) if self._differ else value
        text = json.dumps(shown, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return (_PLACE.sub(r"\1", text) if self._differ else text).encode()

    def _float(self, text: str) -> float:
        number = float(text)
        if repr(number) == text:
            return number
        self._differ = True
        return WrittenFloat(text)

    def _int(self, text: str) -> float:
        return self._float(text) if text == "-0" else int(text)


def _with_places(value: object) -> object:
    """The same, with a text in the place of each number that is written otherwise."""
    match value:
        case WrittenFloat():
            return f"{_TOKEN}:{value.written}"
        case dict():
            return {key: _with_places(each) for key, each in value.items()}
        case list() | tuple():
            return [_with_places(each) for each in value]
    return value
