"""The types that an engine has, by name and by what their brackets may hold, to check configs.

It opens no connection and loads nothing heavy. ``Dialect.cast_type`` uses the same list, so a type that passes the
check does not fail at the first record.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

_SHAPE = re.compile(
    r"(?P<name>[a-z_][a-z0-9_]*(?: [a-z_][a-z0-9_]*)*) ?"
    r"(?:\( ?(?P<arguments>[^()]*?) ?\))?(?P<tail>(?: [a-z]+)*)(?P<array>(?: ?\[ ?\d* ?\])*)",
    re.ASCII,
)
_OWN = re.compile(r'(?:(?:"[^"\0]+"|[a-z_]\w*)\.)?(?:"[^"\0]+"|[a-z_]\w*)(?: ?\[\d*\])*', re.IGNORECASE | re.ASCII)


class TypeProblem(NamedTuple):
    what: str
    fix: str


@dataclass(frozen=True)
class Arguments:
    """What the brackets after a type's name may hold: at most one number per (lowest, highest) limit."""

    limits: tuple[tuple[int, int], ...] = ()
    ordered: bool = False
    """Whether the second must not exceed the first: no more digits after the point than in all."""

    def problem(self, written: str) -> str | None:
        """What is wrong with the text in the brackets."""
        given = [part.strip() for part in written.split(",")]
        if not self.limits:
            return "it takes nothing in brackets"
        if len(given) > len(self.limits):
            return f"it takes at most {len(self.limits)} in brackets"
        numbers = []
        for part, (least, most) in zip(given, self.limits, strict=False):
            if not re.fullmatch(r"[+-]?[0-9]+", part):
                return f"'{part}' is not a whole number"
            numbers.append(int(part))
            if not (least <= numbers[-1] <= most and part.isdigit()):
                return f"{part} is not between {least} and {most}"
        if self.ordered and len(numbers) == 2 and numbers[1] > numbers[0]:
            return f"scale {numbers[1]} is larger than precision {numbers[0]}"
        return None


NOTHING = Arguments()


def length(most: int) -> Arguments:
    return Arguments(((1, most),))


def fraction(most: int = 6) -> Arguments:
    """Digits of a second."""
    return Arguments(((0, most),))


def digits(most: int, most_after_point: int | None = None) -> Arguments:
    return Arguments(((1, most), (0, most if most_after_point is None else most_after_point)), ordered=True)


def named(names: str, arguments: Arguments = NOTHING) -> dict[str, Arguments]:
    """The same for each of these comma-separated names."""
    return {name.strip(): arguments for name in names.split(",")}


def times(most: int = 6, words: str = "timestamp, time") -> dict[str, Arguments]:
    """Types that exist with and without a time zone, as the SQL standard writes them."""
    found: dict[str, Arguments] = {}
    for name in words.split(", "):
        found |= named(f"{name}, {name} with time zone, {name} without time zone", fraction(most))
    return found


@dataclass(frozen=True)
class TypeNames:
    engine: str
    known: Mapping[str, Arguments]
    """By name in lower case, words separated by one space."""
    arrays: bool = False
    own_types: bool = False
    """Whether users can define types: with a schema in front, or in quotes, any name passes."""
    instead: Mapping[str, str] = field(default_factory=dict)
    """What to write instead of other engines' names."""

    def problem(self, asked: str) -> TypeProblem | None:
        """Why a step cannot cast to this here; ``None`` if it can."""
        text = asked.strip()
        if self.own_types and _OWN.fullmatch(text) and re.search(r'[."]', text):
            return None
        shape = _SHAPE.fullmatch(" ".join(text.lower().split()))
        if shape is None:
            return TypeProblem(f"'{asked}' is not written like a type", self._examples)
        name = shape["name"] + (shape["tail"] or "")
        if name not in self.known:
            return TypeProblem(f"'{asked}' is no type of {self.engine}", self._fix(name))
        if shape["array"] and not self.arrays:
            return TypeProblem(f"'{asked}' is an array, which no column of {self.engine} can be here", _AS_TEXT)
        wrong = None if shape["arguments"] is None else self.known[name].problem(shape["arguments"])
        return None if wrong is None else TypeProblem(f"'{asked}' is no type of {self.engine}: {wrong}", "")

    def _fix(self, name: str) -> str:
        meant = self.instead.get(name) or next(iter(difflib.get_close_matches(name, self.known, n=1, cutoff=0.6)), None)
        guess = f"Did you mean '{meant}'?" if meant else self._examples
        own = " A type of your own is written with its schema: public.mood." if self.own_types else ""
        return guess + own

    @property
    def _examples(self) -> str:
        return "Write a type such as bigint, numeric(12,2), timestamptz or text."


_AS_TEXT = "Arrays are kept as JSON text: cast to text, or leave the cast out."
