"""Durations and sizes as people write them: ``5m``, ``250ms``, ``1GiB``, ``10 MB``."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def seconds(value: Any) -> float:
    """``"250ms"`` -> 0.25; a bare number is seconds. Raises ``ValueError`` that says what is accepted."""
    number, unit = _split(value, "a duration such as 250ms, 30s, 5m, 1h or 7d")
    factor = _SECONDS.get(unit or "s")
    if factor is None:
        raise ValueError(f"'{value}' has an unknown unit; write a duration such as 250ms, 30s, 5m, 1h or 7d")
    return number * factor


def size_in_bytes(value: Any) -> int:
    """``"1GiB"`` -> 1073741824; a bare number is bytes. Raises ``ValueError`` that says what is accepted."""
    number, unit = _split(value, "a size such as 512, 10MB or 1GiB")
    factor = _BYTES.get(unit.lower())
    if factor is None:
        raise ValueError(f"'{value}' has an unknown unit; write a size such as 512, 10MB or 1GiB")
    return int(number * factor)


def _split(value: Any, expected: str) -> tuple[float, str]:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"expected {expected}")
    match = _QUANTITY.fullmatch(str(value))
    if match is None:
        raise ValueError(f"'{value}' is not {expected}")
    return float(match[1]), match[2]


Duration = Annotated[
    float,
    BeforeValidator(seconds),
    WithJsonSchema({"type": ["string", "number"], "examples": ["250ms", "30s", "5m", "1h", "7d"]}),
]
"""Seconds, written as a number or with a unit."""

CENTURY = 36_525 * 86_400.0
"""The longest time that is worth waiting for, in seconds. In µs it is far from what 64 bits hold."""

ByteSize = Annotated[
    int,
    BeforeValidator(size_in_bytes),
    WithJsonSchema({"type": ["string", "integer"], "examples": [512, "10MB", "1GiB"]}),
]
"""Bytes, written as a number or with a unit."""
