"""COPY's text format, cut into fields: compiled, on whole blocks.

A row is a line, its values are parted by tabs, ``\\N`` is NULL, and a backslash stands before what would mean something
else. Values with such escapes are put right where they stand, so the block is changed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.compiled import compiled, inlined
from penstock.json.tokens import BACKSLASH
from penstock.json.words import BACKSLASHES, HIGH_BITS, LOW_BITS, SPACES, first_marked_byte, load_word
from penstock.sources.postgres.rows.row_fields import NULL, Places

_TAB, _NEWLINE, _N = 0x09, 0x0A, 0x4E
_MEANT = np.arange(256, dtype=np.uint8)
"""What a byte stands for after a backslash."""
_MEANT[list(b"bfnrtv")] = list(b"\b\f\n\r\t\v")


@compiled
def cut(text: npt.NDArray[np.uint8], size: int, columns: int, starts: Places, ends: Places) -> int:
    """Cut ``text[:size]``, whole rows of so many columns each; how many rows, or -1 if it is not what it should be."""
    i = 0
    field = 0
    rows = 0
    while i < size:
        for column in range(max(columns, 1)):
            start = i
            i = _plain_end(text, i, size)
            if i < size and text[i] == BACKSLASH:
                if i == start and i + 2 < size and text[i + 1] == _N and text[i + 2] in (_TAB, _NEWLINE):
                    start = NULL
                    end = NULL
                    i += 2
                else:
                    i, end = _unescape(text, i, size)
            else:
                end = i
            if i >= size or text[i] != (_NEWLINE if column >= columns - 1 else _TAB):
                return -1
            i += 1
            if columns:
                starts[field] = start
                ends[field] = end
                field += 1
        rows += 1
    return rows


@inlined
def _plain_end(text: npt.NDArray[np.uint8], i: int, size: int) -> int:
    """The first tab, newline or backslash from ``i`` on."""
    while i < size:
        while i + 8 <= size:
            word = load_word(text, i)
            backslash = word ^ BACKSLASHES
            marks = (((backslash - LOW_BITS) & ~backslash) | ((word - SPACES) & ~word)) & HIGH_BITS
            if marks != 0:
                i += first_marked_byte(marks)
                break
            i += 8
        if i >= size or text[i] == _TAB or text[i] == _NEWLINE or text[i] == BACKSLASH:
            break
        i += 1
    return i


@compiled
def _unescape(text: npt.NDArray[np.uint8], i: int, size: int) -> tuple[int, int]:
    """Put a value right from its first backslash on: where its text in the block ends, and where the value does."""
    at = i
    while i < size and text[i] != _TAB and text[i] != _NEWLINE:
        c = text[i]
        if c == BACKSLASH and i + 1 < size:
            i += 1
            c = _MEANT[text[i]]
        text[at] = c
        at += 1
        i += 1
    return i, at
