"""Reads JSON numbers in place as integers and floats: exactly where 64 bits allow.

An integer that fits in 64 bits is one; any other number is the nearest double, as Python and Spark read it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.compiled import Bytes, compiled
from penstock.json.find import Found, Spans
from penstock.json.tokens import FLOAT, INT, exponent_at

Floats = npt.NDArray[np.float64]

Flags = npt.NDArray[np.bool_]

_POWERS_OF_TEN: Floats = np.array([10.0**power for power in range(23)])
_MAX_EXACT = 2**53


def numbers(found: Found, path: int) -> tuple[npt.NDArray[np.int8], Spans, Floats, Flags]:
    """Per row the kind (INT, FLOAT, or the found one of other values), the integer if INT, the number as a float.

    And whether the number is plain: written with at most 15 digits, and well within a double's range. Two plain numbers
    are equal if and only if their doubles are.
    """
    kind = np.ascontiguousarray(found.kind[:, path])
    starts, ends = found.value_start[:, path], found.value_end[:, path]
    ints = np.zeros(len(kind), np.int64)
    floats = np.zeros(len(kind), np.float64)
    plain = np.ones(len(kind), np.bool_)
    hard = _read_all(found.buffer, kind, starts, ends, ints, floats, plain, _POWERS_OF_TEN)
    # Row by row, for the few numbers with so many digits that correct rounding takes big integers.
    for row in np.flatnonzero(hard).tolist():
        kind[row] = FLOAT
        floats[row] = float(found.buffer[starts[row] : ends[row]].tobytes())
    return kind, ints, floats, plain


@compiled
def _read_all(
    buf: Bytes,
    kind: npt.NDArray[np.int8],
    starts: Spans,
    ends: Spans,
    ints: Spans,
    floats: Floats,
    plain: Flags,
    powers: Floats,
) -> Flags:
    hard = np.zeros(len(kind), np.bool_)
    for row in range(len(kind)):
        if kind[row] != INT and kind[row] != FLOAT:
            continue
        i = starts[row]
        end = ends[row]
        negative = buf[i] == 0x2D
        if negative:
            i += 1
        digits = 0
        mantissa = 0
        exponent = 0
        fraction = False
        while i < end:
            c = int(buf[i])
            if c == 0x2E:
                fraction = True
            elif c == 0x65 or c == 0x45:
                break
            else:
                if digits > 0 or c != 0x30:
                    digits += 1
                if digits <= 18:
                    mantissa = mantissa * 10 + (c - 0x30)
                if fraction:
                    exponent -= 1
            i += 1
        exponent += exponent_at(buf, i, end)
        plain[row] = digits <= 15 and -290 <= exponent <= 280
        if digits > 18:
            # 19 digits may still fit in 64 bits: read once more, watching for the limit.
            if kind[row] == INT and digits == 19:
                mantissa = 0
                fits = True
                last = 8 if negative else 7
                for k in range(starts[row], end):
                    if buf[k] == 0x2D:
                        continue
                    digit = int(buf[k]) - 0x30
                    if mantissa > 922337203685477580 or (mantissa == 922337203685477580 and digit > last):
                        fits = False
                        break
                    mantissa = mantissa * 10 + digit
                if fits:
                    ints[row] = -mantissa if negative else mantissa
                    floats[row] = np.float64(ints[row])
                    continue
            hard[row] = True
        elif kind[row] == INT:
            ints[row] = -mantissa if negative else mantissa
            floats[row] = np.float64(ints[row])
        elif mantissa <= _MAX_EXACT and -22 <= exponent <= 22:
            value = np.float64(mantissa)
            value = value * powers[exponent] if exponent >= 0 else value / powers[-exponent]
            floats[row] = -value if negative else value
        else:
            hard[row] = True
    return hard
