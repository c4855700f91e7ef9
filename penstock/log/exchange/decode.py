"""Transporter's entries as ours: found, checked and taken apart with numba, a stretch of the file at a time."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.compiled import Bytes, compiled
from penstock.json.arrow_text import gathered
from penstock.log.exchange.entry_layout import BEFORE_LENGTH_COUNTS, HEAD, LENGTHS_BYTES, MODES, OP_SHIFT, OPS, SECOND
from penstock.log.format.frame import LAST_OFFSET
from penstock.record import ENTRY_SCHEMA

Positions = npt.NDArray[np.int64]

_HEAD_BYTES = HEAD.itemsize
_LATEST = (2**63 - 1) // SECOND


class Problem(IntEnum):
    """Why an entry cannot be read."""

    NONE = 0
    CUT_SHORT = 1
    LENGTHS = 2
    MODE = 3
    ORDER = 4
    TIME = 5
    OFFSET = 6

    @property
    def text(self) -> str:
        return _TEXTS[self]


_TEXTS = {
    Problem.NONE: "",
    Problem.CUT_SHORT: "the file ends in the middle of the entry that begins there",
    Problem.LENGTHS: "the lengths of its key and its data are not those of the whole entry",
    Problem.MODE: "its mode byte stands for no mode and operation",
    Problem.ORDER: "its offset is not above the one before it",
    Problem.TIME: "its timestamp is out of range",
    Problem.OFFSET: f"its offset is above {LAST_OFFSET}, the highest that a log can give",
}
_CUT_SHORT, _LENGTHS, _MODE = int(Problem.CUT_SHORT), int(Problem.LENGTHS), int(Problem.MODE)
_ORDER, _TIME, _OFFSET = int(Problem.ORDER), int(Problem.TIME), int(Problem.OFFSET)
_MODE_COUNT, _OP_COUNT, _MODE_MASK = len(MODES), len(OPS), (1 << OP_SHIFT) - 1


class Found(NamedTuple):
    positions: Positions
    """Where the entries begin, all of them whole and right."""
    end: int
    """Where the next one begins; with a problem, the one that has it."""
    last: int
    """The last one's offset."""
    problem: Problem


def find_entries(content: Bytes, start: int, after: int, max_entries: int, max_bytes: int) -> Found:
    """Up to so many entries from byte ``start`` on, with offsets above ``after``; of at least one, if there is one."""
    positions = np.empty(max_entries, np.int64)
    count, end, last, problem = _find(content, start, after, start + max_bytes, positions)
    return Found(positions[:count], end, last, Problem(problem))


def namespaces(content: Bytes, positions: Positions) -> pa.StringArray:
    """The namespaces of the entries at these positions. Raises ``ArrowInvalid`` if one is no UTF-8."""
    key_length = _heads(content, positions)["key_length"].astype(np.int64)
    return gathered(content, positions + _HEAD_BYTES, key_length).cast(pa.string())


def decode(content: Bytes, positions: Positions) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
    """The entries at these positions (``ENTRY_SCHEMA``) and their offsets."""
    head = _heads(content, positions)
    key_length = head["key_length"].astype(np.int64)
    data_length = head["length"].astype(np.int64) - LENGTHS_BYTES - key_length
    data = gathered(content, positions + _HEAD_BYTES + key_length + 4, data_length, data_length > 0)
    times = pa.py_buffer(head["timestamp"].astype(np.int64) * SECOND)
    mode = head["mode"]
    columns = [
        pa.Array.from_buffers(ENTRY_SCHEMA.field("timestamp").type, len(head), [None, times]),
        namespaces(content, positions),
        pc.take(pa.array([str(op) for op in OPS]), pa.array(mode >> OP_SHIFT)),
        pc.take(pa.array([str(m) for m in MODES]), pa.array(mode & _MODE_MASK)),
        pa.nulls(len(head), pa.string()),
        pa.nulls(len(head), ENTRY_SCHEMA.field("headers").type),
        data,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ENTRY_SCHEMA), head["offset"].astype(np.int64)


def _heads(content: Bytes, positions: Positions) -> npt.NDArray[np.void]:
    heads: npt.NDArray[np.void] = content[positions[:, None] + np.arange(_HEAD_BYTES)].view(HEAD).reshape(-1)
    return heads


@compiled
def _find(content: Bytes, start: int, after: int, limit: int, positions: Positions) -> tuple[int, int, int, int]:
    count, at, last, size = 0, start, after, len(content)
    while at < size and count < len(positions) and (at < limit or count == 0):
        if at + _HEAD_BYTES > size:
            return count, at, last, _CUT_SHORT
        length = _big_endian(content, at + 8, 4)
        end = at + BEFORE_LENGTH_COUNTS + length
        if end > size:
            return count, at, last, _CUT_SHORT
        key_length = _big_endian(content, at + BEFORE_LENGTH_COUNTS, 4)
        data_at = at + _HEAD_BYTES + key_length
        if length < LENGTHS_BYTES + key_length:
            return count, at, last, _LENGTHS
        if _big_endian(content, data_at, 4) != length - LENGTHS_BYTES - key_length:
            return count, at, last, _LENGTHS
        mode = content[at + 20]
        if mode & _MODE_MASK >= _MODE_COUNT or mode >> OP_SHIFT >= _OP_COUNT:
            return count, at, last, _MODE
        offset = _big_endian(content, at, 8)
        if offset <= last:
            return count, at, last, _ORDER
        if offset > LAST_OFFSET:
            return count, at, last, _OFFSET
        seconds = _big_endian(content, at + 12, 8)
        if seconds > _LATEST or seconds < -_LATEST:
            return count, at, last, _TIME
        positions[count] = at
        count, at, last = count + 1, end, offset
    return count, at, last, 0


@compiled
def _big_endian(content: Bytes, at: int, width: int) -> int:
    """A number of so many bytes; of 8 with a sign, of fewer without."""
    value = 0
    for i in range(at, at + width):
        value = value << 8 | content[i]
    return value
