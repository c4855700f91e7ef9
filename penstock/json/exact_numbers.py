"""Numbers as they are written, compared exactly: every digit counts, and no exponent is too large."""

from __future__ import annotations

import re

Exact = tuple[int, int, str]
"""Two numbers compare as these do. Sign, size and digits; below zero the last two are turned round."""

_NUMBER = re.compile(r"([+-]?)([0-9]*)\.?([0-9]*)(?:[eE]([+-]?[0-9]+))?", re.ASCII)
_TURNED = str.maketrans("0123456789", "9876543210")
_AFTER_DIGITS = ":"
_LONGEST_EXPONENT = 4000
"""In digits; Python makes integers of somewhat more. What is beyond is cut off."""


def exact(text: str) -> Exact:
    """``0.1``, ``.10`` and ``1e-1`` are one. Raises ``ValueError`` for what is no number."""
    sign, whole, fraction, exponent = _parts(text)
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return (0, 0, "")
    size = len(digits) - len(fraction) + int(exponent[:_LONGEST_EXPONENT] or 0)
    digits = digits.rstrip("0")
    return (-1, -size, digits.translate(_TURNED) + _AFTER_DIGITS) if sign == "-" else (1, size, digits)


def as_json(text: str) -> str:
    """The number as JSON allows it, which wants digits on both sides of a point, and no zeros or plus before them."""
    sign, whole, fraction, exponent = _parts(text)
    point = f".{fraction}" if fraction else ""
    return f"{sign.strip('+')}{whole.lstrip('0') or '0'}{point}{f'e{exponent}' if exponent else ''}"


def _parts(text: str) -> tuple[str, str, str, str]:
    parts = _NUMBER.fullmatch(text)
    if parts is None or not parts[2] + parts[3]:
        raise ValueError(f"'{text}' is not a number")
    return parts[1], parts[2], parts[3], parts[4] or ""
