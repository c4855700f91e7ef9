"""Decodes a JSON string's bytes to the text that they mean.

Text is UTF-8. Half of a surrogate pair on its own means no character that UTF-8 could hold; it stays as the six
characters of its escape (``\\ud800``), so nothing is lost. ``\\u0000`` becomes a NUL like any other character.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.compiled import Bytes, borrowing
from penstock.json.tokens import BACKSLASH, hex_digit


@borrowing
def has_escape(buf: Bytes, start: int, end: int) -> bool:
    """Whether there is a backslash in ``[start, end)``."""
    i = start
    while i < end and buf[i] != BACKSLASH:
        i += 1
    return i < end


@borrowing
def unescape(buf: Bytes, start: int, end: int, out: npt.NDArray[np.uint8], at: int) -> int:
    """Write the text of a well-formed string (``[start, end)`` without its quotes) to ``out`` from ``at`` on.

    Returns the index after the last byte written; the text is never longer than its escaped form.
    """
    i = start
    while i < end:
        c = buf[i]
        if c != BACKSLASH:
            out[at] = c
            at += 1
            i += 1
            continue
        c = buf[i + 1]
        if c == 0x75:
            code = code_unit(buf, i)
            i += 6
            if 0xD800 <= code <= 0xDFFF:
                paired = -1
                if code <= 0xDBFF and i + 6 <= end and buf[i] == BACKSLASH and buf[i + 1] == 0x75:
                    low = code_unit(buf, i)
                    if 0xDC00 <= low <= 0xDFFF:
                        paired = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
                if paired < 0:
                    for k in range(i - 6, i):
                        out[at] = buf[k]
                        at += 1
                    continue
                i += 6
                code = paired
            at = _write_character(code, out, at)
            continue
        if c == 0x62:
            c = 0x08
        elif c == 0x66:
            c = 0x0C
        elif c == 0x6E:
            c = 0x0A
        elif c == 0x72:
            c = 0x0D
        elif c == 0x74:
            c = 0x09
        out[at] = c
        at += 1
        i += 2
    return at


@borrowing
def code_unit(buf: Bytes, i: int) -> int:
    """The number in the escape ``\\uXXXX`` at ``i``."""
    code = 0
    for k in range(i + 2, i + 6):
        code = (code << 4) | hex_digit(buf[k])
    return code


@borrowing
def _write_character(code: int, out: npt.NDArray[np.uint8], at: int) -> int:
    if code < 0x80:
        out[at] = code
        return at + 1
    if code < 0x800:
        out[at] = 0xC0 | (code >> 6)
        out[at + 1] = 0x80 | (code & 0x3F)
        return at + 2
    if code < 0x10000:
        out[at] = 0xE0 | (code >> 12)
        out[at + 1] = 0x80 | ((code >> 6) & 0x3F)
        out[at + 2] = 0x80 | (code & 0x3F)
        return at + 3
    out[at] = 0xF0 | (code >> 18)
    out[at + 1] = 0x80 | ((code >> 12) & 0x3F)
    out[at + 2] = 0x80 | ((code >> 6) & 0x3F)
    out[at + 3] = 0x80 | (code & 0x3F)
    return at + 4
