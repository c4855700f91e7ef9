"""Writes values of OTLP messages as JSON into a buffer, compiled. All functions return the place behind it.

There must be room: nobody looks for it here.
"""

from __future__ import annotations

import numpy as np

from penstock.compiled import Bytes, borrowing
from penstock.json.words import load_word, store_word

NOT_PLAIN = -1
"""In place of a place: a text has a character that JSON escapes, or one beyond ASCII."""

_LOWEST_BITS, _HIGHEST_BITS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_SPACES, _QUOTES, _BACKSLASHES = (_LOWEST_BITS * np.uint64(ord(character)) for character in ' "\\')
_SPACE, _QUOTE, _BACKSLASH, _ASCII = ord(" "), ord('"'), ord("\\"), 0x80
_ZERO, _TEN = ord("0"), np.uint64(10)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_LEAST_DOUBLE, _MOST_WHOLE, _MOST_PLACES = 1e-3, 1e15, 9
_SECOND, _DAY = np.uint64(1_000_000_000), 86_400
_DAYS_BEFORE_1970, _DAYS_OF_400_YEARS = 719_468, 146_097
"""Days are counted from the first of March of the year 0: so a leap day is the last of its year."""


@borrowing
def put_bytes(out: Bytes, to: int, text: Bytes) -> int:
    """Some bytes as they are."""
    for place in range(len(text)):
        out[to + place] = text[place]
    return to + len(text)


@borrowing
def put_plain_text(out: Bytes, to: int, buf: Bytes, at: int, end: int) -> int:
    """A text of which JSON escapes nothing, without quotes; ``NOT_PLAIN`` for any other."""
    while at + 8 <= end:
        word = load_word(buf, at)
        quotes, backslashes = word ^ _QUOTES, word ^ _BACKSLASHES
        special = (word - _SPACES) | (quotes - _LOWEST_BITS) | (backslashes - _LOWEST_BITS) | word
        if special & _HIGHEST_BITS != np.uint64(0):
            return NOT_PLAIN
        store_word(out, to, word)
        at += 8
        to += 8
    while at < end:
        byte = buf[at]
        if byte < _SPACE or byte == _QUOTE or byte == _BACKSLASH or byte >= _ASCII:
            return NOT_PLAIN
        out[to] = byte
        at += 1
        to += 1
    return to


@borrowing
def put_hex(out: Bytes, to: int, buf: Bytes, at: int, end: int) -> int:
    """Bytes as hexadecimal digits."""
    for place in range(at, end):
        out[to], out[to + 1] = _HEX[buf[place] >> 4], _HEX[buf[place] & 0xF]
        to += 2
    return to


@borrowing
def put_number(out: Bytes, to: int, number: np.uint64) -> int:
    digits, rest = 1, number // _TEN
    while rest != np.uint64(0):
        digits += 1
        rest //= _TEN
    return put_digits(out, to, number, digits)


@borrowing
def put_signed(out: Bytes, to: int, number: int) -> int:
    if number >= 0:
        return put_number(out, to, np.uint64(number))
    out[to] = ord("-")
    # Of the lowest number there is no positive one with a sign.
    return put_number(out, to + 1, np.uint64(0) - np.uint64(number))


@borrowing
def put_short_double(out: Bytes, to: int, value: float) -> int:
    """A double of few digits, with the point in its place; ``NOT_PLAIN`` for any other."""
    size, scale, places = abs(value), 1.0, 0
    if size != 0.0 and not _LEAST_DOUBLE <= size <= _MOST_WHOLE:
        return NOT_PLAIN
    whole = np.floor(size + 0.5)
    # Of decimals with at most fifteen digits no two are the same double. So the first that leads back is the shortest.
    while whole / scale != size:
        scale *= 10.0
        places += 1
        whole = np.floor(size * scale + 0.5)
        if places > _MOST_PLACES or whole > _MOST_WHOLE:
            return NOT_PLAIN
    if np.signbit(value):
        out[to] = ord("-")
        to += 1
    to = put_number(out, to, np.uint64(whole) // np.uint64(scale))
    out[to] = ord(".")
    return put_digits(out, to + 1, np.uint64(whole) % np.uint64(scale), max(places, 1))


@borrowing
def put_digits(out: Bytes, to: int, number: np.uint64, digits: int) -> int:
    """So many of the last digits of a number."""
    for place in range(to + digits - 1, to - 1, -1):
        out[place] = np.int64(number % _TEN) + _ZERO
        number //= _TEN
    return to + digits


@borrowing
def put_moment(out: Bytes, to: int, nanos: np.uint64, nanoseconds: bool) -> int:
    """A time since 1970, without quotes, with six digits of a second or with nine."""
    seconds: int = np.int64(nanos // _SECOND)  # type: ignore[assignment]
    rest = nanos % _SECOND
    days, second = seconds // _DAY + _DAYS_BEFORE_1970, seconds % _DAY
    era, day = days // _DAYS_OF_400_YEARS, days % _DAYS_OF_400_YEARS
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    to = put_digits(out, to, np.uint64(400 * era + year + (month >= 10)), 4)
    to = _put_part(out, to, ord("-"), month + 3 if month < 10 else month - 9)
    to = _put_part(out, to, ord("-"), day + 1)
    to = _put_part(out, to, ord("T"), second // 3_600)
    to = _put_part(out, to, ord(":"), second // 60 % 60)
    to = _put_part(out, to, ord(":"), second % 60)
    out[to] = ord(".")
    to = put_digits(out, to + 1, rest, 9) if nanoseconds else put_digits(out, to + 1, rest // np.uint64(1_000), 6)
    out[to] = ord("Z")
    return to + 1


@borrowing
def _put_part(out: Bytes, to: int, before: int, part: int) -> int:
    out[to] = before
    return put_digits(out, to + 1, np.uint64(part), 2)
