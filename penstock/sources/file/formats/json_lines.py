"""Cutting a block of a file into lines and checking each, compiled: what is a record, what is not, where reading stops.

Nothing is copied and nothing is built per line: ``cut`` says where lines begin and end, as arrays. Pure, and exact
about the place after every line.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.compiled import Bytes, compiled
from penstock.json.containers import container_end
from penstock.json.tokens import OPEN_OBJECT, skip_whitespace
from penstock.json.words import HIGH_BITS, LOW_BITS, first_marked_byte, load_word

MAX_LINES = 2**16
"""The most lines of one cut: with tiny ones it bounds what their places and headers weigh."""

GOOD, BAD, PART = 0, 1, 2
"""The kinds of lines: a JSON object; one that seems to be none; a piece of a line that is too long."""

_NEWLINE = 0x0A
_RETURN = 0x0D
_NEWLINES = np.uint64(0x0A0A0A0A0A0A0A0A)


@compiled
def cut(
    buf: Bytes,
    at: int,
    line: int,
    inside: bool,
    complete: bool,
    line_bytes: int,
    places: npt.NDArray[np.int64],
    kinds: npt.NDArray[np.int8],
) -> tuple[int, int, int, bool]:
    """Find the lines of ``buf`` that are not blank. It begins at byte ``at`` of the file, after ``line`` lines (or
    ``inside`` the last). Returns how many there are, how much of ``buf`` was cut (blank lines included), the number of
    the last line that was begun, and whether the cut ended inside a line.

    For each, ``places`` gets where it starts and ends (without its line break and a byte order mark), its number
    in the file from 1, and where reading goes on after it; ``kinds`` gets its kind. Bytes after the last newline are
    left for the next block, unless the file is ``complete`` (then they are its last line) or they are more than
    ``line_bytes`` (then pieces of that size are given, marked as such, so memory has a bound). No more are cut than
    ``kinds`` has room for.
    """
    count = 0
    offset = 0
    size = len(buf)
    while offset < size and count < len(kinds):
        limit = min(size, offset + line_bytes + 1)
        newline = _newline(buf, offset, limit)
        ended = True
        if newline < limit:
            end = newline
            following = newline + 1
        elif size - offset > line_bytes:
            end = following = offset + line_bytes
            ended = False
        elif complete:
            end = following = size
        else:
            break
        if not inside:
            line += 1
        start = offset
        if at + offset == 0 and end >= 3 and buf[0] == 0xEF and buf[1] == 0xBB and buf[2] == 0xBF:
            start = 3
        kind = PART
        if not inside and ended:
            if end > start and buf[end - 1] == _RETURN:
                end -= 1
            first = skip_whitespace(buf, start, end)
            kind = BAD
            if first == end:
                kind = -1
            elif buf[first] == OPEN_OBJECT:
                after = container_end(buf, first, end)
                if after >= 0 and skip_whitespace(buf, after, end) == end:
                    kind = GOOD
        if kind >= 0:
            places[0, count] = start
            places[1, count] = end
            places[2, count] = line
            places[3, count] = following
            kinds[count] = kind
            count += 1
        offset = following
        inside = not ended
    return count, offset, line, inside


@compiled
def _newline(buf: Bytes, i: int, end: int) -> int:
    """The first newline from ``i`` on, or ``end``."""
    while i + 8 <= end:
        word = load_word(buf, i) ^ _NEWLINES
        # A borrow can mark only bytes after a true mark.
        marks = (word - LOW_BITS) & ~word & HIGH_BITS
        if marks != 0:
            return i + first_marked_byte(marks)
        i += 8
    while i < end and buf[i] != _NEWLINE:
        i += 1
    return i
