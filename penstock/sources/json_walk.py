"""Walks over a large JSON text: finds where its values are by parsing one at a time.

Parsing ten megabytes at once takes a good part of a second in which no other thread may run, and twenty times the
memory. A walker parses single values of a bounded size, forgets them, and keeps their places. It decides what lies
*between* values; whether a value is what it should be (UTF-8, for one) is for ``parse`` to say.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.sources.json_text import DECODER, WHITESPACE, NotJson, Span

WINDOW_BYTES = 256 * 1024
_TAIL = 16
"""How near to the end of a window an error may be caused by the cut."""


class TooLong(ValueError):
    """A value is longer than the walker's window."""


@dataclass(frozen=True, slots=True)
class Outline:
    """An object of which one member is a long array."""

    listed: array[int]
    """Starts and ends of the array's elements, alternating."""
    others: dict[str, tuple[int, Span]]
    """Where the other members' keys begin, and where their values are. A repeated key counts with its last value."""

    def elements(self) -> Iterator[Span]:
        places = iter(self.listed)
        return map(Span, places, places)


class Walker:
    """Walks over ``text``, which has no whitespace around it. Values up to ``longest`` bytes are never ``TooLong``."""

    def __init__(self, text: bytes, longest: int, window: int = WINDOW_BYTES) -> None:
        self._text = text
        self._size = max(window, longest + 2 * _TAIL)
        self._base = 0
        self._window = ""
        self.end = 0
        """Where the last value ends."""

    def elements(self, at: int) -> Iterator[Span]:
        """The elements of the array that begins at ``at``."""
        position = self._past_whitespace(at + 1)
        if self._byte(position) != "]":
            while True:
                end = self.value_end(position)
                yield Span(position, end)
                position = self._past_whitespace(end)
                if self._byte(position) == "]":
                    break
                position = self._past_comma(position)
        self.end = position + 1

    def outline(self, listed: str, most: int) -> Outline | None:
        """The members of the object that the text is; None if ``listed`` is not an array of it. Stops looking at its
        elements when there are more than ``most``."""
        others: dict[str, tuple[int, Span]] = {}
        found: array[int] | None = None
        position = self._past_whitespace(1)
        while self._byte(position) != "}":
            if self._byte(position) != '"':
                raise self.fault("Expecting property name enclosed in double quotes", position)
            key_start, key_end = position, self.value_end(position)
            key = self._key(key_start, key_end)
            position = self._past_whitespace(key_end)
            if self._byte(position) != ":":
                raise self.fault("Expecting ':' delimiter", position)
            position = self._past_whitespace(position + 1)
            if key == listed:
                found = None
                if self._byte(position) == "[":
                    found = array("q")
                    for span in self.elements(position):
                        found.extend(span)
                        if len(found) > 2 * most:
                            return Outline(found, others)
                    position = self._past_whitespace(self.end)
                else:
                    position = self._past_whitespace(self.value_end(position))
            else:
                end = self.value_end(position)
                others[key] = (key_start, Span(position, end))
                position = self._past_whitespace(end)
            if self._byte(position) == "}":
                break
            position = self._past_comma(position)
        self.end = position + 1
        return Outline(found, others) if found is not None else None

    def check_end(self) -> None:
        """Check that nothing follows."""
        if self.end != len(self._text):
            raise self.fault("Extra data", self.end)

    def value_end(self, at: int) -> int:
        """Where the value that begins at ``at`` ends."""
        if at - self._base >= len(self._window):
            self._move(at)
        while True:
            local = at - self._base
            whole = self._base + len(self._window) >= len(self._text)
            try:
                _, end = DECODER.raw_decode(self._window, local)
            except RecursionError:
                raise NotJson("nested too deeply") from None
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated string") or error.pos >= len(self._window) - _TAIL
                if whole or not cut:
                    raise self.fault(error.msg, self._base + error.pos) from None
            else:
                if whole or end < len(self._window):
                    return self._base + end
            if local == 0:
                raise TooLong
            self._move(at)

    def fault(self, what: str, at: int) -> NotJson:
        line = self._text.count(b"\n", 0, at) + 1
        column = at - self._text.rfind(b"\n", 0, at)
        return NotJson(f"not JSON: {what} at line {line} column {column}")

    def _key(self, start: int, end: int) -> str:
        try:
            key: str = json.loads(self._text[start:end].decode())
        except UnicodeDecodeError as error:
            raise NotJson(f"not UTF-8 at byte {start + error.start}") from None
        return key

    def _past_comma(self, at: int) -> int:
        if self._byte(at) != ",":
            raise self.fault("Expecting ',' delimiter", at)
        position = self._past_whitespace(at + 1)
        if self._byte(position) in "]}":
            raise self.fault("Illegal trailing comma", at)
        return position

    def _past_whitespace(self, at: int) -> int:
        text = self._text
        if at < len(text) and text[at] not in WHITESPACE:
            return at
        while True:  # in pieces: there may be megabytes of it
            piece = text[at : at + 4096]
            rest = piece.lstrip(WHITESPACE)
            at += len(piece) - len(rest)
            if rest or not piece:
                return at

    def _byte(self, at: int) -> str:
        return chr(self._text[at]) if at < len(self._text) else " "

    def _move(self, at: int) -> None:
        self._base = at
        # One character per byte keeps positions in the text and in the bytes the same; structure is ASCII anyway.
        self._window = self._text[at : at + self._size].decode("latin-1")
