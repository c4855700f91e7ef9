"""Timestamps from strings, as microseconds since 1970 in UTC.

RFC 3339: ``2026-11-15T08:05:26.123456Z``. Fraction and zone are optional; no zone means UTC. A cast is more generous
than inference: it also takes a space for the ``T``, a date alone (midnight), and more than six digits of fraction where
the rest are zeros.
"""

from __future__ import annotations

import numpy as np

from penstock.compiled import Bytes, compiled
from penstock.flatten.values.value_spans import Bools, Int64s, Kinds, Spans
from penstock.json.tokens import STRING


def cast_timestamps(spans: Spans) -> tuple[Int64s, Bools]:
    """Values as microseconds, and which of them could be converted."""
    return _timestamps(spans.buffer, spans.start, spans.end, spans.kind, True)


def exact_timestamps(spans: Spans) -> Int64s | None:
    """Values as microseconds if every one is a timestamp with a ``T``, written without escapes; else None."""
    values, converted = _timestamps(spans.buffer, spans.start, spans.end, spans.kind, False)
    return values if converted.all() else None


_MICROSECONDS_PER_SECOND = 1_000_000
NO_TIMESTAMP = np.iinfo(np.int64).min


@compiled
def _timestamps(buf: Bytes, start: Int64s, end: Int64s, kind: Kinds, generous: bool) -> tuple[Int64s, Bools]:
    values = np.zeros(len(start), np.int64)
    converted = np.zeros(len(start), np.bool_)
    for k in range(len(start)):
        if kind[k] == STRING:
            value = read_timestamp(buf, start[k], end[k], generous)
            if value != NO_TIMESTAMP:
                values[k] = value
                converted[k] = True
            elif not generous:
                return values, converted
        elif not generous:
            return values, converted
    return values, converted


@compiled
def read_timestamp(buf: Bytes, i: int, end: int, generous: bool) -> int:
    """The timestamp that is written in ``[i, end)``, without quotes; ``NO_TIMESTAMP`` if it is none. ``generous``: as
    casts take it."""
    if end - i < 10 or buf[i + 4] != 0x2D or buf[i + 7] != 0x2D:
        return NO_TIMESTAMP
    year = _number(buf, i, 4)
    month = _number(buf, i + 5, 2)
    day = _number(buf, i + 8, 2)
    if year < 1 or month < 1 or month > 12 or day < 1 or day > _days_in_month(year, month):
        return NO_TIMESTAMP
    days = _days_since_1970(year, month, day)
    i += 10
    if i == end:
        return days * 86_400 * _MICROSECONDS_PER_SECOND if generous else NO_TIMESTAMP
    c = buf[i]
    if c != 0x54 and not (generous and (c == 0x20 or c == 0x74)):
        return NO_TIMESTAMP
    if end - i < 9 or buf[i + 3] != 0x3A or buf[i + 6] != 0x3A:
        return NO_TIMESTAMP
    hour = _number(buf, i + 1, 2)
    minute = _number(buf, i + 4, 2)
    second = _number(buf, i + 7, 2)
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return NO_TIMESTAMP
    i += 9
    micros = 0
    if i < end and buf[i] == 0x2E:
        i += 1
        digits = 0
        while i < end and buf[i] >= 0x30 and buf[i] <= 0x39:
            if digits < 6:
                micros = micros * 10 + int(buf[i] - 0x30)
            elif buf[i] != 0x30:
                return NO_TIMESTAMP
            digits += 1
            i += 1
        if digits == 0 or (digits > 6 and not generous):
            return NO_TIMESTAMP
        for _ in range(digits, 6):
            micros *= 10
    offset = 0
    if i < end:
        c = buf[i]
        if c == 0x5A or (generous and c == 0x7A):
            i += 1
        elif (c == 0x2B or c == 0x2D) and end - i == 6 and buf[i + 3] == 0x3A:
            hours = _number(buf, i + 1, 2)
            minutes = _number(buf, i + 4, 2)
            if hours < 0 or hours > 23 or minutes < 0 or minutes > 59:
                return NO_TIMESTAMP
            offset = (hours * 60 + minutes) * 60
            if c == 0x2D:
                offset = -offset
            i += 6
        if i != end:
            return NO_TIMESTAMP
    seconds = days * 86_400 + hour * 3_600 + minute * 60 + second - offset
    # Few targets support times beyond years 1 to 9999 UTC.
    if seconds < -62_135_596_800 or seconds > 253_402_300_799:
        return NO_TIMESTAMP
    return seconds * _MICROSECONDS_PER_SECOND + micros


@compiled
def _number(buf: Bytes, i: int, digits: int) -> int:
    """The number of so many digits at ``i``, or -1."""
    number = 0
    for k in range(i, i + digits):
        c = int(buf[k])
        if c < 0x30 or c > 0x39:
            return -1
        number = number * 10 + c - 0x30
    return number


@compiled
def _days_in_month(year: int, month: int) -> int:
    if month == 2:
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        return 29 if leap else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


@compiled
def _days_since_1970(year: int, month: int, day: int) -> int:
    """Days in the proleptic Gregorian calendar, counting years from March so that leap days come last."""
    if month <= 2:
        year -= 1
        month += 12
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + day - 719_469
