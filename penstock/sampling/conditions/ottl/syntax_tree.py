"""A condition as it is written: what the parser makes of the text, and what the compiler reads."""

from __future__ import annotations

from dataclasses import dataclass

Constant = str | int | float | bool | bytes | None


@dataclass(frozen=True)
class Literal:
    value: Constant
    at: int
    """Where it begins in the text, from 0 on; so for all of them."""


@dataclass(frozen=True)
class Enum:
    name: str
    at: int


@dataclass(frozen=True)
class Path:
    """``names`` stand between dots; ``keys`` are in brackets after the last of them."""

    names: tuple[str, ...]
    keys: tuple[Written, ...]
    at: int

    @property
    def dotted(self) -> str:
        return ".".join(self.names)


@dataclass(frozen=True)
class ListOf:
    items: tuple[Written, ...]
    at: int


@dataclass(frozen=True)
class Call:
    name: str
    arguments: tuple[Written, ...]
    at: int
    indexed: bool = False
    """A key in brackets stands behind it."""


@dataclass(frozen=True)
class Joined:
    """``and`` or ``or`` of two and more."""

    word: str
    parts: tuple[Written, ...]
    at: int


@dataclass(frozen=True)
class Negated:
    """``not``."""

    part: Written
    at: int


@dataclass(frozen=True)
class Comparison:
    symbol: str
    left: Written
    right: Written
    at: int


@dataclass(frozen=True)
class Calculation:
    """``first``, then each of ``others`` with the operator before it, from left to right."""

    first: Written
    others: tuple[tuple[str, Written], ...]
    at: int


@dataclass(frozen=True)
class Minus:
    """A minus sign before something."""

    part: Written
    at: int


Written = Literal | Enum | Path | ListOf | Call | Joined | Negated | Comparison | Calculation | Minus
