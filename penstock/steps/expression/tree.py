"""What an expression is once it is read: four kinds of nodes, plain values that can be pickled and compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.json.paths import Path


@dataclass(frozen=True)
class Written:
    """A number that neither an integer of 64 bits nor a double is: as its text."""

    text: str


Constant = str | int | float | bool | Written | None


@dataclass(frozen=True)
class Literal:
    value: Constant


@dataclass(frozen=True)
class Field:
    """A field of the data."""

    path: Path


@dataclass(frozen=True)
class RecordField:
    """A field of the record around the data; ``header`` names one of its headers."""

    name: str
    header: str | None = None


@dataclass(frozen=True)
class Call:
    """An operator or function by its name in ``functions.FUNCTIONS``; ``constants`` are arguments known beforehand."""

    name: str
    arguments: tuple[Node, ...]
    constants: tuple[Constant, ...] = ()


Node = Literal | Field | RecordField | Call


def fields(node: Node) -> list[Path]:
    """The paths that a tree reads, each once."""
    return list(dict.fromkeys(_fields(node)))


def _fields(node: Node) -> Iterator[Path]:
    if isinstance(node, Field):
        yield node.path
    elif isinstance(node, Call):
        for argument in node.arguments:
            yield from _fields(argument)
