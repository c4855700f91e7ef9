"""CSV: each row becomes a JSON object of its column names and its fields as text.

Rows are cut and rewritten in compiled code. A row that does not have as many fields as the header, or whose quotes are
wrong, is kept as it stands and marked. A quote that is never closed spoils its line only: reading goes on in the next.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.compiled import Bytes, compiled
from penstock.json.arrow_text import arrow_array, quoted, write_character
from penstock.json.tokens import QUOTE
from penstock.sources.file.content import Content
from penstock.sources.file.file_progress import Position
from penstock.sources.file.formats.column_names import distinct_names
from penstock.sources.file.formats.file_entries import most_entries
from penstock.sources.file.formats.json_lines import MAX_LINES
from penstock.sources.file.formats.record_cutter import Piece
from penstock.sources.json_text import BOM

GOOD, WRONG_COUNT, TEXT_AFTER_QUOTE, OPEN_QUOTE, PART, TOO_LARGE = range(6)

_FULL_BYTES = 24 * 2**20
_MOST_ROW_BYTES = 40 * 2**20
_NEWLINE, _RETURN = 0x0A, 0x0D


class _Header(NamedTuple):
    """The columns, and where the rows begin."""

    names: Bytes
    """What goes before each value, `"name":`, one after the other."""
    offsets: npt.NDArray[np.int64]
    end: int
    lines: int


class CsvCutter:
    """Cuts one file. ``columns`` are its column names if it has no header: that is the first line that is not blank."""

    def __init__(
        self, content: Content, delimiter: str, quote: str, columns: Sequence[str] | None, line_bytes: int
    ) -> None:
        self._content = content
        self._delimiter, self._quote = delimiter, quote
        self._line_bytes = line_bytes
        self._header = None if columns is None else _header(columns, 0, 0)

    def cut(self, block: Bytes, position: Position, complete: bool) -> Piece:
        header = self._header = self._header or self._read_header(complete)
        if header is None:
            return _nothing(0, position)
        skipped = max(0, header.end - position.end)
        if skipped >= len(block):
            return _nothing(len(block), position._replace(line=header.lines))
        if skipped == 0 and position.end == 0 and block[:3].tobytes() == BOM:
            skipped = 3
        line = max(position.line, header.lines)
        most = min(MAX_LINES, most_entries(position.file))
        offsets = np.zeros(most + 1, np.int64)
        places = np.empty((4, most), np.int64)
        kinds = np.empty(most, np.int8)
        out = np.empty(_FULL_BYTES + 6 * len(block) + 4 * len(header.offsets) + len(header.names) + 64, np.uint8)
        count, taken, lines, inside = _cut(
            block, skipped, line, position.inside, complete, self._line_bytes, ord(self._delimiter), ord(self._quote),
            header.names, header.offsets, out, offsets, places, kinds,
        )  # fmt: skip
        data = arrow_array(pa.binary(), out[: offsets[count]], offsets[: count + 1])
        numbers, followings, fields, starts = places[:, :count]
        problems = [
            (int(row), self._reason(kinds[row], int(fields[row]), len(header.offsets) - 1))
            for row in np.flatnonzero(kinds[:count])
        ]
        if unreadable := _not_utf8(data, {row for row, _ in problems}):
            values = data.to_pylist()
            for row in unreadable:
                values[row] = block[starts[row] : followings[row]].tobytes().rstrip(b"\r\n")
                problems.append((row, "not UTF-8"))
            data = pa.array(values, pa.binary())
        return Piece(data, numbers, followings, sorted(problems), taken, lines, inside)

    def _read_header(self, complete: bool) -> _Header | None:
        """None: its line has not ended yet."""
        head = self._content.read(0, self._line_bytes)
        start = _first_text(head)
        end = _header_end(head, start, ord(self._quote), complete)
        if end < 0:
            return None
        text = head[start:end].decode("utf-8", "replace")
        rows = list(csv.reader([text], delimiter=self._delimiter, quotechar=self._quote)) if text.strip() else []
        return _header(rows[0] if rows else [], end, head[:end].count(b"\n"))

    def _reason(self, kind: int, fields: int, columns: int) -> str:
        match kind:
            case 1:
                return f"{fields} fields where {columns} were expected"
            case 2:
                return "text after the closing quote of a field"
            case 3:
                return "a quote that is not closed"
            case 4:
                return f"part of a line longer than {self._line_bytes} bytes"
            case _:
                return "a row that is too large as JSON"


def _header(columns: Sequence[str], end: int, lines: int) -> _Header:
    names = distinct_names([column.strip() for column in columns])
    texts = [quoted(name) + b":" for name in names]
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    return _Header(np.frombuffer(b"".join(texts) or b" ", np.uint8), offsets, end, lines)


def _first_text(head: bytes) -> int:
    """Where the first line begins that is not blank."""
    start = len(BOM) if head.startswith(BOM) else 0
    while (after := head.find(b"\n", start) + 1) and not head[start:after].strip():
        start = after
    return start


def _header_end(head: bytes, start: int, quote: int, complete: bool) -> int:
    """After the first line break from ``start`` on that is in no quotes; -1 if there is none yet."""
    inside = False
    for place, byte in enumerate(head[start:], start):
        if byte == quote:
            inside = not inside
        elif byte == _NEWLINE and not inside:
            return place + 1
    return len(head) if complete else -1


def _nothing(taken: int, position: Position) -> Piece:
    none = np.zeros(0, np.int64)
    return Piece(pa.array([], pa.binary()), none, none, [], taken, position.line, False)


def _not_utf8(data: pa.BinaryArray, known: set[int]) -> list[int]:
    """Rows that are not UTF-8, without the ``known`` bad ones."""
    try:
        data.cast(pa.string())
    except pa.ArrowInvalid:  # only now row by row
        return [row for row, text in enumerate(data.to_pylist()) if row not in known and not _is_utf8(text)]
    return []


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


@compiled
def _cut(
    buf: Bytes,
    offset: int,
    line: int,
    inside: bool,
    complete: bool,
    line_bytes: int,
    delimiter: int,
    quote: int,
    names: Bytes,
    name_offsets: npt.NDArray[np.int64],
    out: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    places: npt.NDArray[np.int64],
    kinds: npt.NDArray[np.int8],
) -> tuple[int, int, int, bool]:
    size = len(buf)
    columns = len(name_offsets) - 1
    count = 0
    at = 0
    while offset < size and count < len(kinds) and at < _FULL_BYTES:
        # Line breaks between rows are nothing.
        if not inside:
            if buf[offset] == _NEWLINE:
                offset += 1
                line += 1
                continue
            if buf[offset] == _RETURN and offset + 1 < size and buf[offset + 1] == _NEWLINE:
                offset += 2
                line += 1
                continue
        begin = at
        ended = False
        kind = GOOD
        fields = 0
        i = offset
        breaks = 0
        limit = min(size, offset + line_bytes + 1)
        if not inside:
            out[at] = 0x7B
            at += 1
            while True:
                if fields < columns:
                    if fields > 0:
                        out[at] = 0x2C
                        at += 1
                    for k in range(name_offsets[fields], name_offsets[fields + 1]):
                        out[at] = names[k]
                        at += 1
                out[at] = QUOTE
                at += 1
                fields += 1
                closed = True
                if i < limit and buf[i] == quote:
                    i += 1
                    closed = False
                    while i < limit:
                        if buf[i] == quote:
                            if i + 1 < size and buf[i + 1] == quote:
                                at = write_character(quote, out, at)
                                i += 2
                                continue
                            if i + 1 == size and not complete:
                                break
                            closed = True
                            i += 1
                            break
                        if buf[i] == _NEWLINE:
                            breaks += 1
                        at = write_character(buf[i], out, at)
                        i += 1
                    if not closed:
                        break
                    if i < limit and buf[i] != delimiter and buf[i] != _NEWLINE and buf[i] != _RETURN:
                        kind = TEXT_AFTER_QUOTE
                while i < limit and buf[i] != delimiter and buf[i] != _NEWLINE:
                    if buf[i] == _RETURN and (i + 1 == size or buf[i + 1] == _NEWLINE):
                        break
                    at = write_character(buf[i], out, at)
                    i += 1
                out[at] = QUOTE
                at += 1
                if fields > columns:
                    at = begin + 1  # too many: what is written will not be used
                if i >= limit:
                    ended = complete and i == size
                    break
                if buf[i] == delimiter:
                    i += 1
                    continue
                if buf[i] == _RETURN:
                    if i + 1 == size:
                        ended = complete
                        i += 1
                        break
                    i += 1
                i += 1
                breaks += 1
                ended = True
                break
            if ended and kind == GOOD and fields != columns:
                kind = WRONG_COUNT
            if ended:
                out[at] = 0x7D
                at += 1
                if at - begin > _MOST_ROW_BYTES:
                    kind = TOO_LARGE
            line += 1
        first_line = line
        if ended:
            following = i
            # A last row without line break counts as a line too, so that numbers go on from it.
            line += max(0, breaks - 1)
            inside = False
            end = i
            while kind != GOOD and end > offset and (buf[end - 1] == _NEWLINE or buf[end - 1] == _RETURN):
                end -= 1
        elif size - offset > line_bytes or (complete and not inside) or inside:
            # No row: the line as it stands, or a piece of it.
            end = offset
            while end < limit and buf[end] != _NEWLINE:
                end += 1
            if end < limit:
                following = end + 1
                kind = PART if inside else OPEN_QUOTE
                inside = False
            elif end - offset > line_bytes:
                end = following = offset + line_bytes
                kind = PART
                inside = True
            elif complete:
                following = end
                kind = PART if inside else OPEN_QUOTE
                inside = False
            else:
                if not inside:
                    line -= 1
                at = begin
                break
            if kind == OPEN_QUOTE and end > offset and buf[end - 1] == _RETURN:
                end -= 1
        else:
            line -= 1
            at = begin
            break
        if kind != GOOD:
            at = begin
            for k in range(offset, end):
                out[at] = buf[k]
                at += 1
        places[0, count] = first_line
        places[1, count] = following
        places[2, count] = fields
        places[3, count] = offset
        kinds[count] = kind
        count += 1
        offsets[count] = at
        offset = following
    return count, offset, line, inside
