"""One large JSON array: each element is a record. It is read as a stream, so memory does not grow with the file.

Where the text is broken, the rest of that line is kept as it stands, marked, and reading goes on in the next line.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.compiled import Bytes, compiled
from penstock.json.containers import value_end
from penstock.json.tokens import CLOSE_ARRAY, COMMA, OPEN_ARRAY, OPEN_OBJECT
from penstock.sources.file.file_progress import Position
from penstock.sources.file.formats.record_cutter import Piece, cut_piece

_GOOD, _BAD, _BROKEN, _PART = 0, 1, 2, 3

_NEWLINE = 0x0A
_LONGEST_TOKEN = 16
"""A word, an escape or a character that the end of a block cuts apart is broken at most so far before that end."""


class ArrayCutter:
    """``inside`` of a position: inside of the array."""

    def __init__(self, line_bytes: int) -> None:
        self._line_bytes = line_bytes

    def cut(self, block: Bytes, position: Position, complete: bool) -> Piece:
        part = f"part of an element longer than {self._line_bytes} bytes"
        reasons = {_PART: part, _BROKEN: "not an element of a JSON array"}
        return cut_piece(_cut, block, position, complete, self._line_bytes, reasons)


@compiled
def _cut(
    buf: Bytes,
    at: int,
    line: int,
    inside: bool,
    complete: bool,
    line_bytes: int,
    places: npt.NDArray[np.int64],
    kinds: npt.NDArray[np.int8],
) -> tuple[int, int, int, bool]:
    """As ``json_lines.cut``; ``line`` counts the line breaks before a place."""
    size = len(buf)
    count = 0
    i = 0
    if at == 0 and size >= 3 and buf[0] == 0xEF and buf[1] == 0xBB and buf[2] == 0xBF:
        i = 3
    while i < size and count < len(kinds):
        c = buf[i]
        if c == _NEWLINE:
            line += 1
        if c in (0x20, 0x09, 0x0D, _NEWLINE) or (inside and c == COMMA):
            i += 1
            continue
        if c == CLOSE_ARRAY and inside:
            inside = False
            i += 1
            continue
        if c == OPEN_ARRAY and not inside:
            inside = True
            i += 1
            continue
        kind = _BROKEN
        end = following = i
        if inside:
            end = following = value_end(buf, i, size)
            if end >= 0:
                if end == size and not complete and c != OPEN_OBJECT and size - i <= line_bytes:
                    break  # a number may go on
                kind = _GOOD if c == OPEN_OBJECT else _BAD
            elif not complete and ~end >= size - _LONGEST_TOKEN and size - i <= line_bytes:
                break
        if kind == _GOOD and end - i > line_bytes:
            kind = _BROKEN
        if kind == _BROKEN:
            limit = min(size, i + line_bytes)
            end = i
            while end < limit and buf[end] != _NEWLINE:
                end += 1
            if end == size and not complete and size - i < line_bytes:
                break
            if end - i >= line_bytes:
                kind = _PART
            following = end
        places[0, count] = i
        places[1, count] = end
        places[2, count] = line + 1
        places[3, count] = following
        kinds[count] = kind
        count += 1
        for k in range(i, following):
            if buf[k] == _NEWLINE:
                line += 1
        i = following
    return count, i, line, inside
