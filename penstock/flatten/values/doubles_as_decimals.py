"""Converts doubles to decimals by the digits that a double is printed with: 0.1 is 0.1, not the nearest binary
fraction.

Most doubles that people send have few digits. Those are found by trial here, without printing them.
"""

from __future__ import annotations

import numpy as np

from penstock.compiled import compiled
from penstock.flatten.values.parse_numbers import Doubles, UInt64s
from penstock.flatten.values.value_spans import Bools

_MOST_DIGITS = 15
"""So many decimal digits always survive a double, so a number found by trial is the only one."""


def short_decimals(doubles: Doubles, precision: int, scale: int) -> tuple[UInt64s, Bools]:
    """Doubles as 128-bit integers scaled by ``10 ** scale`` (two words each), and which of them were converted: those
    with at most 15 digits, none beyond the scale, that fit the precision."""
    words = np.zeros((len(doubles), 2), np.uint64)
    return words, _scale_all(doubles, precision, scale, words)


_POWERS = np.array([10.0**n for n in range(_MOST_DIGITS + 1)])
_TENS = np.array([10**n for n in range(20)], np.uint64)


@compiled
def _scale_all(doubles: Doubles, precision: int, scale: int, words: UInt64s) -> Bools:
    converted = np.zeros(len(doubles), np.bool_)
    for k in range(len(doubles)):
        size = abs(doubles[k])
        if not size < _POWERS[_MOST_DIGITS]:
            continue
        for places in range(min(scale, _MOST_DIGITS) + 1):
            digits = np.rint(size * _POWERS[places])
            if digits >= _POWERS[_MOST_DIGITS]:
                break
            if digits / _POWERS[places] != size:
                continue
            shift = scale - places
            # What is left of the precision for these digits; more than 15 they never need.
            room = precision - shift
            if shift < len(_TENS) and room >= 0 and digits < _POWERS[min(room, _MOST_DIGITS)]:
                _store(np.uint64(digits), _TENS[shift], doubles[k] < 0, words, k)
                converted[k] = True
            break
    return converted


@compiled
def _store(one: np.uint64, other: np.uint64, negative: bool, words: UInt64s, k: int) -> None:
    """``one * other`` in two words, negated if asked: multiplied by halves, as on paper."""
    half = np.uint64(32)
    mask = np.uint64(0xFFFFFFFF)
    low = (one & mask) * (other & mask)
    middle = (one >> half) * (other & mask) + (low >> half)
    cross = (one & mask) * (other >> half) + (middle & mask)
    high = (one >> half) * (other >> half) + (middle >> half) + (cross >> half)
    low = (cross << half) | (low & mask)
    if negative:
        low = ~low + np.uint64(1)
        high = ~high + (np.uint64(1) if low == 0 else np.uint64(0))
    words[k, 0] = low
    words[k, 1] = high
