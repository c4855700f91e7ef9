"""Cutting a file into lines, with the place of each: pure, and exact about where reading stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple


class Position(NamedTuple):
    """How far a file has been read: ``line`` lines, ``end`` bytes. ``inside``: that was in the middle of a line."""

    file: str
    line: int = 0
    end: int = 0
    inside: bool = False

    def to_header(self) -> str:
        inside = ',"inside":true' if self.inside else ""
        return f'{{"file":{_quoted(self.file)},"line":{self.line},"end":{self.end}{inside}}}'

    @classmethod
    def from_header(cls, text: str) -> Position:
        return cls(**json.loads(text))

    @property
    def place(self) -> str:
        """``file:line`` for people."""
        return f"{self.file.encode('utf-8', 'backslashreplace').decode()}:{self.line}"


class Line(NamedTuple):
    """A line without its newline. ``part``: it is a piece of one that is longer than a line may be."""

    data: bytes
    position: Position
    """Where reading goes on after it."""
    part: bool


def cut(block: bytes, start: Position, complete: bool, line_bytes: int) -> Iterator[Line]:
    """The lines in ``block``, which was read from ``start`` on.

    Bytes after the last newline are left for the next block, unless the file is ``complete`` (then they are its last
    line) or more than ``line_bytes`` (then pieces of that size are given, marked as such, so memory has a bound).
    """
    number, offset, inside = start.line, 0, start.inside
    while offset < len(block):
        newline = block.find(b"\n", offset, offset + line_bytes + 1)
        if newline >= 0:
            end, following, ended = newline, newline + 1, True
        elif len(block) - offset > line_bytes:
            end, following, ended = offset + line_bytes, offset + line_bytes, False
        elif complete:
            end, following, ended = len(block), len(block), True
        else:
            return
        if not inside:
            number += 1
        position = Position(start.file, number, start.end + following, not ended)
        yield Line(block[offset:end], position, part=inside or not ended)
        offset, inside = following, not ended


@lru_cache(maxsize=1024)
def _quoted(name: str) -> str:
    # Escaped to ASCII: a file's name need not be valid UTF-8, a header must be.
    return json.dumps(name)
