"""Compares numbers exactly as they are written: every digit counts, and no exponent is too large."""

from __future__ import annotations

import re

NumberKey = tuple[int, int, str]
"""Numbers compare as their keys do: sign, size and digits; for negative numbers the last two are inverted."""

_NUMBER = re.compile(r"([+-]?)([0-9]*)\.?([0-9]*)(?:[eE]([+-]?[0-9]+))?", re.ASCII)
_TURNED = str.maketrans("0123456789", "9876543210")
_AFTER_DIGITS = ":"
_LONGEST_EXPONENT = 4000
"""In digits; Python converts somewhat more to integers. The rest is cut off."""


def number_key(text: str) -> NumberKey:
    """``0.1``, ``.10`` and ``1e-1`` have the same key. Raises ``ValueError`` for text that is not a number."""
    sign, whole, fraction, exponent = _parts(text)
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return (0, 0, "")
    size = len(digits) - len(fraction) + int(exponent[:_LONGEST_EXPONENT] or 0)
    digits = digits.rstrip("0")
    return (-1, -size, digits.translate(_TURNED) + _AFTER_DIGITS) if sign == "-" else (1, size, digits)


def as_json(text: str) -> str:
    """The number as JSON allows it: digits on both sides of a point, no leading zeros and no plus."""
    sign, whole, fraction, exponent = _parts(text)
    point = f".{fraction}" if fraction else ""
    return f"{sign.strip('+')}{whole.lstrip('0') or '0'}{point}{f'e{exponent}' if exponent else ''}"


def _parts(text: str) -> tuple[str, str, str, str]:
    parts = _NUMBER.fullmatch(text)
    if parts is None or not parts[2] + parts[3]:
        raise ValueError(f"'{text}' is not a number")
    return parts[1], parts[2], parts[3], parts[4] or ""
