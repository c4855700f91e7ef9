"""The position of a change, written by compiled code: its header goes on each of them."""

from __future__ import annotations

import numpy as np

from penstock.compiled import compiled
from penstock.sources.postgres.rows.value_json import Out, copy_bytes

POSITION_ROOM = 120
"""More than what ``write_change_position`` writes."""

_COMMIT = np.frombuffer(b'"commit":"', np.uint8)
_NUMBER = np.frombuffer(b'","number":', np.uint8)
_TIME = np.frombuffer(b',"committed":"', np.uint8)
_END = np.frombuffer(b'Z"}', np.uint8)
_DAY = 86_400_000_000
_EPOCH_DAYS = 730_425
"""Days from 1 March of the year 0 to 1 January 2000, where PostgreSQL's time begins."""
_ERA_DAYS = 146_097
_ZERO = 0x30


@compiled
def write_change_position(commit: int, number: int, time: int, out: Out, at: int) -> int:
    """``"commit":"16/B374D848","number":3,"committed":"2026-01-02T03:04:05.123456Z"}``; the index after it."""
    at = copy_bytes(_COMMIT, 0, len(_COMMIT), out, at)
    at = _write_hex(commit >> 32, out, at)
    out[at] = 0x2F
    at = _write_hex(commit & 0xFFFFFFFF, out, at + 1)
    at = copy_bytes(_NUMBER, 0, len(_NUMBER), out, at)
    at = _write_digits(number, 1, out, at)
    at = copy_bytes(_TIME, 0, len(_TIME), out, at)
    at = _write_time(time, out, at)
    return copy_bytes(_END, 0, len(_END), out, at)


@compiled
def _write_hex(value: int, out: Out, at: int) -> int:
    digits = 1
    while value >> (4 * digits):
        digits += 1
    for place in range(digits - 1, -1, -1):
        digit = (value >> (4 * place)) & 0xF
        out[at] = _ZERO + digit if digit < 10 else 0x37 + digit
        at += 1
    return at


@compiled
def _write_digits(value: int, least: int, out: Out, at: int) -> int:
    """The number in at least so many digits."""
    digits = least
    power = 10**least
    while value >= power:
        digits += 1
        power *= 10
    for place in range(digits - 1, -1, -1):
        out[at + place] = _ZERO + value % 10
        value //= 10
    return at + digits


@compiled
def _write_time(time: int, out: Out, at: int) -> int:
    """Microseconds since 2000 as ``2026-01-02T03:04:05.123456``."""
    days = time // _DAY
    within = time - days * _DAY
    # Years are counted from March, so that a leap day is the last of its year.
    days += _EPOCH_DAYS
    era = days // _ERA_DAYS
    day = days - era * _ERA_DAYS
    year = (day - day // 1460 + day // 36524 - day // 146096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    at = _write_digits(year + era * 400 + (1 if month >= 10 else 0), 4, out, at)
    out[at] = 0x2D
    at = _write_digits(month + 3 if month < 10 else month - 9, 2, out, at + 1)
    out[at] = 0x2D
    at = _write_digits(day - (153 * month + 2) // 5 + 1, 2, out, at + 1)
    out[at] = 0x54
    at = _write_digits(within // 3_600_000_000, 2, out, at + 1)
    out[at] = 0x3A
    at = _write_digits(within // 60_000_000 % 60, 2, out, at + 1)
    out[at] = 0x3A
    at = _write_digits(within // 1_000_000 % 60, 2, out, at + 1)
    out[at] = 0x2E
    return _write_digits(within % 1_000_000, 6, out, at + 1)
