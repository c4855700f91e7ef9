"""Offsets on the command line: ``13..15`` with both ends included, ``13``, ``13..``, ``..15``."""

from __future__ import annotations

import re
from dataclasses import dataclass

import typer

_RANGE = re.compile(r"(\d*)\.\.(\d*)|(\d+)", re.ASCII)


@dataclass(frozen=True)
class OffsetRange:
    first: int
    last: int | None
    """Included; ``None`` is the newest there is."""


def range_argument(text: str, metavar: str) -> OffsetRange:
    """The range that an argument says. Raises an error of usage that says what is accepted."""
    try:
        return parse_range(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=metavar) from None


def parse_range(text: str) -> OffsetRange:
    """Raises ``ValueError`` that says what is accepted."""
    found = _RANGE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"'{text}' is not a range of offsets such as 13..15, 13, 13.. or ..15")
    if found[3]:
        return OffsetRange(int(found[3]), int(found[3]))
    parsed = OffsetRange(int(found[1] or 0), int(found[2]) if found[2] else None)
    if parsed.last is not None and parsed.last < parsed.first:
        raise ValueError(f"'{text}' ends before it begins; write the lower offset first")
    return parsed
