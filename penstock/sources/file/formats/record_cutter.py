"""From a block of a file to records: what every format owes, and NDJSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.compiled import Bytes
from penstock.json.arrow_text import gathered
from penstock.sources.file.file_progress import Position
from penstock.sources.file.formats.file_entries import most_entries
from penstock.sources.file.formats.json_lines import MAX_LINES, PART, cut
from penstock.sources.json_text import NotJson, kind_of, parse


class Piece(NamedTuple):
    """The records in the first ``taken`` bytes of a block."""

    data: pa.BinaryArray
    numbers: npt.NDArray[np.int64]
    """The line (or row) that each begins in, from 1."""
    followings: npt.NDArray[np.int64]
    """Where in the block reading goes on after each."""
    problems: list[tuple[int, str]]
    """Rows that are no records, and why."""
    taken: int
    line: int
    """How many lines were begun."""
    inside: bool
    """It ended inside a line."""


Cut = Callable[..., tuple[int, int, int, bool]]
"""A compiled function such as ``json_lines.cut``."""


class Cutter(Protocol):
    """Cuts the blocks of one file. It keeps nothing from block to block, so reading can go on at any position."""

    def cut(self, block: Bytes, position: Position, complete: bool) -> Piece:
        """The records of ``block``, which begins at ``position``. Leaves what follows the last whole record, unless the
        file is ``complete``. Always takes something of a block that is larger than the longest line."""


class LineCutter:
    """NDJSON: each line that is not blank is a record."""

    def __init__(self, line_bytes: int) -> None:
        self._line_bytes = line_bytes

    def cut(self, block: Bytes, position: Position, complete: bool) -> Piece:
        reasons = {PART: f"part of a line longer than {self._line_bytes} bytes"}
        return cut_piece(cut, block, position, complete, self._line_bytes, reasons)


def cut_piece(
    cut: Cut, block: Bytes, position: Position, complete: bool, line_bytes: int, reasons: Mapping[int, str]
) -> Piece:
    """The records of ``block`` by a compiled function; ``reasons`` says why those of a kind are no records."""
    most = min(MAX_LINES, most_entries(position.file))
    places = np.empty((4, most), np.int64)
    kinds = np.empty(most, np.int8)
    count, taken, lines, inside = cut(
        block, position.end, position.line, position.inside, complete, line_bytes, places, kinds
    )
    starts, ends, numbers, followings = places[:, :count]
    data = gathered(block, starts, ends - starts)
    return Piece(data, numbers, followings, problems_of(data, kinds[:count], reasons), taken, lines, inside)


def problems_of(data: pa.BinaryArray, kinds: npt.NDArray[np.int8], reasons: Mapping[int, str]) -> list[tuple[int, str]]:
    """The rows that are no records, and why: for some kinds that is known, for others the slower parser has the last
    word. Good rows, of kind 0, are not looked at."""
    found = [
        (row, reasons.get(int(kinds[row])) or problem(data[row].as_py())) for row in np.flatnonzero(kinds).tolist()
    ]
    return [(row, reason) for row, reason in found if reason is not None]


def problem(data: bytes) -> str | None:
    """Why a text is no record; None if it is one."""
    try:
        value = parse(data)
    except NotJson as error:
        return str(error)
    return None if isinstance(value, dict) else f"{kind_of(value)} where an object was expected"
