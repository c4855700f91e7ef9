"""Finds one string in the start of a JSON text that nobody has checked: cut anywhere, or no JSON at all.

Who sends it is not known yet, so what counts is the most that it can cost: a handful of passes over the bytes, each of
them compiled, about a millisecond for 64 KB whatever is in them.
"""

from __future__ import annotations

import json
import re
from functools import cache

import numpy as np
import numpy.typing as npt

_QUOTE = ord('"')
_DEPTH_CHANGE = bytes({"{": 1, "[": 1, "}": 0xFF, "]": 0xFF}.get(chr(code), 0) for code in range(256))
"""Per byte, by how much it changes the depth, as a signed number."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def first_string(text: bytes, key: str) -> str | None:
    """The first string under ``key`` (ASCII, also if it is written with escapes) of the object that begins here."""
    found = list(_member_of(key).finditer(text))
    if not found:
        return None
    at_top = _opens_at_top(text)
    for member in found:
        if at_top[member.start()]:
            value = _STRING.match(text, member.end())
            return None if value is None else _decoded(value.group())
    return None


def _opens_at_top(text: bytes) -> bytes:
    """Per byte, whether it is in a string (its opening quote included) whose parent is the outermost object."""
    # Pairs from the left, so a quote that is left over is not escaped. All lengths stay.
    unescaped = text.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    in_string: npt.NDArray[np.bool_] = np.bitwise_xor.accumulate(np.frombuffer(unescaped, np.uint8) == _QUOTE)
    change = np.frombuffer(unescaped.translate(_DEPTH_CHANGE), np.int8) * ~in_string
    top: npt.NDArray[np.bool_] = in_string & (np.cumsum(change, dtype=np.int32) == 1)
    return top.tobytes()


@cache
def _member_of(key: str) -> re.Pattern[bytes]:
    """The key, the colon and the blanks before a string."""
    spelled = "".join(rf"(?:{re.escape(letter)}|\\u00(?i:{ord(letter):02x}))" for letter in key)
    return re.compile(rf'"{spelled}"[ \t\r\n]*+:[ \t\r\n]*+(?=")'.encode())


def _decoded(quoted: bytes) -> str | None:
    try:
        text: str = json.loads(quoted)
    except ValueError:
        return None
    return text
