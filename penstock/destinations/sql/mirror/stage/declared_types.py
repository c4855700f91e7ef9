"""The types that a source declares for its columns, as PostgreSQL writes them: ``character varying(40)[]``.

They come from records and end up in statements, so an engine accepts only those that it knows by name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class Declared:
    """``timestamp(3) with time zone[]`` is ``timestamp with time zone``, ``(3,)``, an array."""

    name: str
    arguments: tuple[int, ...] = ()
    is_array: bool = False


UNKNOWN = Declared("")


@lru_cache(maxsize=4_096)
def parse_declared(text: str) -> Declared:
    """Read a type; ``UNKNOWN`` for text that does not look like one."""
    match = _SHAPE.fullmatch(" ".join(text.lower().split()))
    if match is None:
        return UNKNOWN
    arguments = tuple(int(number) for number in (match["arguments"] or "").split(",") if number)
    return Declared(match["name"] + (match["tail"] or ""), arguments, bool(match["array"]))


_SHAPE = re.compile(
    r'(?P<name>"char"|[a-z][a-z0-9_]*( [a-z]+)*)(\((?P<arguments>\d+(,\d+)?)\))?(?P<tail> [a-z ]+)?(?P<array>(\[\])*)'
)
