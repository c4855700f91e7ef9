"""Literals of a condition, as Go reads them."""

from __future__ import annotations

import math

from penstock.sampling.conditions.ottl.condition_error import Misread

_ESCAPES = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, '"': 34}
_CODES = {"x": 2, "u": 4, "U": 8}
"""How many hexadecimal digits follow."""
_LARGEST_OCTET = 255


def read_integer(text: str, at: int) -> int:
    # 2**63 is left to a minus sign before it.
    if len(text.lstrip("0")) > 19 or int(text) > 2**63:
        raise Misread(at, f"`{text}` is no integer of 64 bits")
    return int(text)


def read_double(text: str, at: int) -> float:
    value = float(text)
    if math.isinf(value):
        raise Misread(at, f"`{text}` is too large for a double")
    return value


def read_bytes(text: str, at: int) -> bytes:
    if len(text) % 2:
        raise Misread(at, f"`{text}` has an odd number of hexadecimal digits")
    return bytes.fromhex(text.removeprefix("0x"))


def unquote(quoted: str, at: int) -> str:
    """The text that a quoted one stands for, with Go's escapes."""
    inner = quoted[1:-1]
    if "\n" in inner:
        raise Misread(at, "a text cannot go on in the next line: write \\n")
    pieces = inner.split("\\")
    read = bytearray(pieces[0].encode())
    # An escaped backslash leaves an empty piece between its two halves.
    place = 1
    while place < len(pieces):
        piece = pieces[place]
        if not piece:
            read += b"\\" + pieces[place + 1].encode()
            place += 2
            continue
        octets, length = _escaped(piece, at)
        read += octets + piece[length:].encode()
        place += 1
    try:
        return read.decode()
    except UnicodeDecodeError as error:
        raise Misread(at, f"`{quoted}` is not a text in UTF-8") from error


def _escaped(piece: str, at: int) -> tuple[bytes, int]:
    """What the escape at the beginning stands for, and its length without the backslash."""
    letter = piece[0]
    if letter in _ESCAPES:
        return bytes([_ESCAPES[letter]]), 1
    length = _CODES.get(letter, 0)
    code = _number(piece[1 : 1 + length], length, 16) if length else _number(piece[:3], 3, 8)
    if code is not None:
        if letter in "uU" and code <= 0x10FFFF and not 0xD800 <= code < 0xE000:
            return chr(code).encode(), 1 + length
        if letter not in "uU" and code <= _LARGEST_OCTET:
            return bytes([code]), 1 + length if length else 3
    raise Misread(at, f"`\\{piece[: 1 + length]}` is no escape of a text; a backslash is written `\\\\`")


def _number(digits: str, length: int, base: int) -> int | None:
    allowed = "0123456789abcdefABCDEF" if base == 16 else "01234567"
    if len(digits) != length or not all(digit in allowed for digit in digits):
        return None
    return int(digits, base)
