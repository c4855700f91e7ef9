"""Numbers and booleans from their JSON spelling, exactly or not at all.

``exact_*`` are for columns without a cast: they say whether every value keeps its whole meaning. ``cast_*`` are for
columns with one: they also read numbers out of strings (``"7"``, ``"1.5"``), and say for each value whether it could be
converted. Nothing is rounded. A double stands for the number with the shortest text that gives it: a double keeps 0.1,
but not 0.10000000000000001, which gives the same double.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.compiled import Bytes, compiled
from penstock.flatten.values.same_number import same_numbers
from penstock.flatten.values.text_values import text_array
from penstock.flatten.values.to_json import as_text
from penstock.flatten.values.value_spans import Bools, Int64s, Kinds, Spans
from penstock.json.tokens import ARRAY, FALSE, INT, STRING, TRUE, exponent_at, number_end

Doubles = npt.NDArray[np.float64]
UInt64s = npt.NDArray[np.uint64]


def exact_integers(spans: Spans) -> Int64s | None:
    """Values of integers and booleans, or None if one is beyond 64 bits."""
    values = np.empty(len(spans), np.int64)
    return values if _integers(spans.buffer, spans.start, spans.end, spans.kind, values) else None


def exact_doubles(spans: Spans) -> tuple[Doubles, Bools] | None:
    """Values of numbers and booleans, and which of them a double keeps; or None if one is too large (a number for a
    double, an integer for 64 bits), so small that it becomes zero, or an integer that a double would round."""
    values = np.empty(len(spans), np.float64)
    hard = np.zeros(len(spans), np.bool_)
    if not _doubles(spans.buffer, spans.start, spans.end, spans.kind, values, hard):
        return None
    kept = np.ones(len(spans), np.bool_)
    if hard.any():
        hard_spans = spans.where(hard)
        values[hard], kept[hard] = _hard_doubles(hard_spans)
        if not np.isfinite(values).all() or _vanishes(hard_spans, values[hard]):
            return None
    return values, kept


def keep_their_spelling(spans: Spans, doubles: Doubles) -> bool:
    """Whether numbers with a point are all written as their doubles would be printed."""
    unsure = np.zeros(len(spans), np.bool_)
    if not _are_plain(spans.buffer, spans.start, spans.end, unsure):
        return False
    if not unsure.any():
        return True
    few = spans.where(unsure)
    rows = np.arange(len(few), dtype=np.int32)
    written = text_array(Spans(few.buffer, rows, few.kind, few.start, few.end, few.kinds), len(few))
    return bool(as_text(pa.array(doubles[unsure])).equals(written))


def cast_doubles(spans: Spans) -> tuple[Doubles, Bools]:
    """Values as doubles, and which of them could be converted: those that a double keeps."""
    values = np.zeros(len(spans), np.float64)
    converted = _numeric(spans.buffer, spans.start, spans.end, spans.kind)
    some = converted.nonzero()[0]
    chosen = spans.where(converted)
    easy = np.zeros(len(chosen), np.float64)
    hard = np.zeros(len(chosen), np.bool_)
    _doubles(chosen.buffer, chosen.start, chosen.end, chosen.kind, easy, hard)
    if hard.any():
        easy[hard], kept = _hard_doubles(chosen.where(hard))
        converted[some[hard]] = kept
    values[some] = easy
    return values, converted


def cast_integers(spans: Spans, bits: int) -> tuple[Int64s, Bools]:
    """Values as integers of so many bits, and which of them could be converted: ``9.0`` can, ``9.5`` cannot."""
    words, converted = _scaled(
        spans.buffer, spans.start, spans.end, spans.kind, 0, _limbs(2 ** (bits - 1) - 1), _limbs(2 ** (bits - 1))
    )
    return words[:, 0].view(np.int64), converted


def cast_decimals(spans: Spans, precision: int, scale: int) -> tuple[UInt64s, Bools]:
    """Values as 128-bit integers scaled by ``10 ** scale`` (two words each), and which of them could be converted: not
    those with too many digits before or after the point."""
    most = _limbs(10**precision - 1)
    return _scaled(spans.buffer, spans.start, spans.end, spans.kind, scale, most, most)


def cast_booleans(spans: Spans) -> tuple[Bools, Bools]:
    """Values as booleans, and which could be converted: ``true``, ``false``, 1, 0 and the same as strings."""
    return _booleans(spans.buffer, spans.start, spans.end, spans.kind)


def _vanishes(spans: Spans, doubles: Doubles) -> bool:
    """Whether a nonzero number became zero."""
    zeros = spans.where(doubles == 0)
    return any(
        any(digit in zeros.buffer[start:end].tobytes().lower().partition(b"e")[0] for digit in b"123456789")
        for start, end in zip(zeros.start.tolist(), zeros.end.tolist(), strict=True)
    )


def _hard_doubles(spans: Spans) -> tuple[Doubles, Bools]:
    """Values as the nearest doubles, and which of them a double keeps."""
    rows = np.arange(len(spans), dtype=np.int32)
    text = text_array(Spans(spans.buffer, rows, spans.kind, spans.start, spans.end, spans.kinds), len(spans))
    found: Doubles = text.cast(pa.float64()).to_numpy(zero_copy_only=False)
    kept = np.isfinite(found)
    kept[kept] = same_numbers(text.filter(pa.array(kept)), as_text(pa.array(found[kept])))
    return found, kept


def _limbs(number: int) -> UInt64s:
    """A number below 2**128 as four parts of 32 bits, lowest first."""
    return np.array([number >> shift & 0xFFFFFFFF for shift in (0, 32, 64, 96)], np.uint64)


@compiled
def _integers(buf: Bytes, start: Int64s, end: Int64s, kind: Kinds, values: Int64s) -> bool:
    for k in range(len(start)):
        if kind[k] != INT:
            values[k] = 1 if kind[k] == TRUE else 0
            continue
        i = start[k]
        negative = buf[i] == 0x2D
        if negative:
            i += 1
        digits = end[k] - i
        if digits > 19:
            return False
        value = np.uint64(0)
        while i < end[k]:
            value = value * np.uint64(10) + np.uint64(buf[i] - 0x30)
            i += 1
        if value > (np.uint64(0x8000000000000000) if negative else np.uint64(0x7FFFFFFFFFFFFFFF)):
            return False
        values[k] = -np.int64(value) if negative else np.int64(value)
    return True


_POWERS = np.array([10.0**n for n in range(23)])


@compiled
def _doubles(buf: Bytes, start: Int64s, end: Int64s, kind: Kinds, values: Doubles, hard: Bools) -> bool:
    """Values that one exact division or multiplication gives, and that a double keeps; others are marked ``hard``.
    False: an integer is too large or would be rounded."""
    unrounded = True
    for k in range(len(start)):
        if kind[k] == TRUE or kind[k] == FALSE:
            values[k] = 1.0 if kind[k] == TRUE else 0.0
            continue
        i = start[k]
        stop = end[k]
        negative = buf[i] == 0x2D
        if negative:
            i += 1
        mantissa = np.uint64(0)
        digits = 0
        exponent = 0
        fraction = False
        while i < stop:
            c = buf[i]
            if c == 0x2E:
                fraction = True
            elif c >= 0x30 and c <= 0x39:
                mantissa = mantissa * np.uint64(10) + np.uint64(c - 0x30)
                # Not by the mantissa alone: past 64 bits it may be zero again.
                if digits > 0 or mantissa != 0:
                    digits += 1
                if fraction:
                    exponent -= 1
            else:
                break
            i += 1
        exponent += exponent_at(buf, i, stop)
        # Up to 52 bits, decimals are farther apart than doubles: no two of them share a double.
        if digits <= 19 and mantissa <= np.uint64(1 << 52) and -22 <= exponent <= 22:
            value = np.float64(mantissa)
            value = value / _POWERS[-exponent] if exponent < 0 else value * _POWERS[exponent]
            values[k] = -value if negative else value
            continue
        if kind[k] == INT:
            most = np.uint64(0x8000000000000000) if negative else np.uint64(0x7FFFFFFFFFFFFFFF)
            if digits > 19 or mantissa > most or not _whole_in_a_double(mantissa):
                unrounded = False
        hard[k] = True
    return unrounded


@compiled
def _are_plain(buf: Bytes, start: Int64s, end: Int64s, unsure: Bools) -> bool:
    """Whether numbers are in plain notation without redundant zeros. ``unsure``: numbers with so many digits, or so
    small or large, that a double may be printed differently."""
    for k in range(len(start)):
        i = start[k]
        stop = end[k]
        if buf[i] == 0x2D:
            i += 1
        point = i
        while point < stop and buf[point] != 0x2E:
            point += 1
        if point == stop or (buf[stop - 1] == 0x30 and stop - point != 2):
            return False
        for j in range(point + 1, stop):
            if buf[j] < 0x30 or buf[j] > 0x39:
                return False
        tiny = buf[i] == 0x30 and point + 4 < stop and buf[point + 1] == buf[point + 2] == buf[point + 3] == 0x30
        unsure[k] = stop - i > 16 or point - i > 9 or tiny
    return True


@compiled
def _whole_in_a_double(number: np.uint64) -> bool:
    """Whether at most 53 bits lie between the highest and the lowest bit that is set."""
    while number > np.uint64(1 << 53):
        if number & np.uint64(1) != 0:
            return False
        number >>= np.uint64(1)
    return True


@compiled
def _numeric(buf: Bytes, start: Int64s, end: Int64s, kind: Kinds) -> Bools:
    """Which values are numbers, booleans, or strings that spell a number as JSON does."""
    found = np.empty(len(start), np.bool_)
    for k in range(len(start)):
        if kind[k] == STRING:
            found[k] = number_end(buf, start[k], end[k]) == end[k]
        else:
            found[k] = kind[k] != ARRAY
    return found


@compiled
def _scaled(
    buf: Bytes,
    start: Int64s,
    end: Int64s,
    kind: Kinds,
    scale: int,
    most: UInt64s,
    least: UInt64s,
) -> tuple[UInt64s, Bools]:
    """``value * 10 ** scale`` as 128-bit integers from ``-least`` to ``most``, where it is one."""
    words = np.zeros((len(start), 2), np.uint64)
    converted = _numeric(buf, start, end, kind)
    limbs = np.zeros(4, np.uint64)
    for k in range(len(start)):
        if not converted[k]:
            continue
        limbs[:] = 0
        negative = False
        fits = True
        if kind[k] == TRUE or kind[k] == FALSE:
            limbs[0] = 1 if kind[k] == TRUE else 0
            for _ in range(scale):
                fits = fits and _shift_in(limbs, np.uint64(0))
        else:
            negative = buf[start[k]] == 0x2D
            fits = _read_scaled(buf, start[k] + (1 if negative else 0), end[k], scale, limbs)
        if not fits or not _at_most(limbs, least if negative else most):
            converted[k] = False
            continue
        low = limbs[0] | (limbs[1] << np.uint64(32))
        high = limbs[2] | (limbs[3] << np.uint64(32))
        if negative:
            low = ~low + np.uint64(1)
            high = ~high + (np.uint64(1) if low == 0 else np.uint64(0))
        words[k, 0] = low
        words[k, 1] = high
    return words, converted


@compiled
def _read_scaled(buf: Bytes, i: int, end: int, scale: int, limbs: UInt64s) -> bool:
    """An unsigned JSON number times ``10 ** scale`` to ``limbs``. False: it is too large, or no integer."""
    first = i
    digits = 0
    after_point = 0
    point = False
    while i < end and buf[i] != 0x65 and buf[i] != 0x45:
        if buf[i] == 0x2E:
            point = True
        else:
            digits += 1
            after_point += 1 if point else 0
        i += 1
    last = i
    shift = exponent_at(buf, i, end) - after_point + scale
    kept = digits + min(shift, 0)
    seen = 0
    zero = True
    for j in range(first, last):
        if buf[j] == 0x2E:
            continue
        digit = np.uint64(buf[j] - 0x30)
        if seen < kept:
            if not _shift_in(limbs, digit):
                return False
        elif digit != 0:
            return False
        zero = zero and digit == 0
        seen += 1
    if shift > 0 and not zero:
        for _ in range(shift):
            if not _shift_in(limbs, np.uint64(0)):
                return False
    return True


@compiled
def _shift_in(limbs: UInt64s, digit: np.uint64) -> bool:
    """``limbs * 10 + digit``; False if that is beyond 128 bits."""
    carry = digit
    for k in range(4):
        total = limbs[k] * np.uint64(10) + carry
        limbs[k] = total & np.uint64(0xFFFFFFFF)
        carry = total >> np.uint64(32)
    return bool(carry == 0)


@compiled
def _at_most(limbs: UInt64s, limit: UInt64s) -> bool:
    for k in range(3, -1, -1):
        if limbs[k] != limit[k]:
            return bool(limbs[k] < limit[k])
    return True


@compiled
def _booleans(buf: Bytes, start: Int64s, end: Int64s, kind: Kinds) -> tuple[Bools, Bools]:
    values = np.zeros(len(start), np.bool_)
    converted = np.zeros(len(start), np.bool_)
    for k in range(len(start)):
        length = end[k] - start[k]
        i = start[k]
        if kind[k] == TRUE or kind[k] == FALSE:
            values[k] = kind[k] == TRUE
            converted[k] = True
        elif (kind[k] == INT or kind[k] == STRING) and length == 1 and (buf[i] == 0x30 or buf[i] == 0x31):
            values[k] = buf[i] == 0x31
            converted[k] = True
        elif kind[k] == STRING and length == 4:
            # A letter with bit 0x20 set is its lower case.
            values[k] = (
                buf[i] | 0x20 == 0x74
                and buf[i + 1] | 0x20 == 0x72
                and buf[i + 2] | 0x20 == 0x75
                and buf[i + 3] | 0x20 == 0x65
            )
            converted[k] = values[k]
        elif kind[k] == STRING and length == 5:
            converted[k] = (
                buf[i] | 0x20 == 0x66
                and buf[i + 1] | 0x20 == 0x61
                and buf[i + 2] | 0x20 == 0x6C
                and buf[i + 3] | 0x20 == 0x73
                and buf[i + 4] | 0x20 == 0x65
            )
    return values, converted
