"""From places in a block to entries of the log, without a Python object per record.

Every entry carries the header ``position`` (file, line, and the byte after it). The last entry of each append also
carries ``resume``: all that reading needs to continue after it. An append happens completely or not at all, and is of
one file, so the last ``resume`` of each file in the log is how far that file has been read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.compiled import Bytes, compiled
from penstock.json.arrow_text import arrow_array, copy_bytes, offsets_of_lengths
from penstock.record import ENTRY_SCHEMA, Header, Mode, Op, int64_array

RESUME = "resume"
"""The header of the last entry of an append."""

_TIMESTAMP = ENTRY_SCHEMA.field("timestamp").type
_MOST_DIGITS = 19
_MOST_HEADER_BYTES = 24 * 2**20

Numbers = npt.NDArray[np.int64]


class Problem(NamedTuple):
    """Why a row is no record: ``reason`` is for people and names the place."""

    row: int
    reason: str


def entry_batch(
    data: pa.BinaryArray,
    namespace: str,
    file: str,
    numbers: Numbers,
    ends: Numbers,
    problems: Sequence[Problem],
    resume: str,
) -> pa.RecordBatch:
    """Entries with this data, read from ``file`` at the lines ``numbers``, reading going on at the bytes ``ends``."""
    count = len(data)
    arrays = [
        int64_array(np.full(count, time.time_ns() // 1000)).view(_TIMESTAMP),
        pa.repeat(namespace, count),
        pa.repeat(str(Op.INSERT), count),
        pa.repeat(str(Mode.COPY), count),
        pa.nulls(count, pa.string()),
        _headers(_positions(file, numbers, ends), problems, resume),
        data,
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ENTRY_SCHEMA)


def most_entries(file: str) -> int:
    """How many entries of a file may go into one append: their headers, which repeat its name, must fit as well."""
    return max(1, _MOST_HEADER_BYTES // (len(quoted(file)) + 64))


def _headers(positions: pa.StringArray, problems: Sequence[Problem], resume: str) -> pa.MapArray:
    count = len(positions)
    values = pa.concat_arrays([positions, pa.array([*(p.reason for p in problems), resume], pa.string())])
    names = pa.array([str(Header.POSITION), str(Header.MALFORMED), RESUME], pa.string())
    extra = np.zeros(count, np.int64)
    rows = np.array([problem.row for problem in problems], np.int64)
    extra[rows] = 1
    extra[-1] += 1
    offsets = offsets_of_lengths(1 + extra)
    kinds = np.zeros(offsets[-1], np.int64)
    kinds[offsets[rows] + 1] = 1
    kinds[-1] = 2
    if problems:
        order = np.empty(offsets[-1], np.int64)
        order[offsets[:-1]] = np.arange(count)
        order[offsets[rows] + 1] = np.arange(count, count + len(rows))
        order[-1] = len(values) - 1
        values = values.take(int64_array(order))
    return pa.MapArray.from_arrays(_int32_array(offsets), names.take(int64_array(kinds)), values)


def _int32_array(values: Numbers) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(values.astype(np.int32))])


def _positions(file: str, numbers: Numbers, ends: Numbers) -> pa.StringArray:
    head = np.frombuffer(f'{{"file":{quoted(file)},"line":'.encode(), np.uint8)
    out = np.empty(len(numbers) * (len(head) + len(_MIDDLE) + 1 + 2 * _MOST_DIGITS), np.uint8)
    offsets = _write_positions(head, _MIDDLE, numbers, ends, out)
    return arrow_array(pa.string(), out[: offsets[-1]], offsets)


@lru_cache(maxsize=1024)
def quoted(name: str) -> str:
    """A file's name as a JSON string. Escaped to ASCII: a name need not be valid UTF-8, a header must be."""
    return json.dumps(name)


_MIDDLE = np.frombuffer(b',"end":', np.uint8)


@compiled
def _write_positions(
    head: Bytes, middle: Bytes, numbers: Numbers, ends: Numbers, out: npt.NDArray[np.uint8]
) -> Numbers:
    offsets = np.zeros(len(numbers) + 1, np.int64)
    at = 0
    for row in range(len(numbers)):
        at = copy_bytes(head, 0, len(head), out, at)
        at = _write_number(numbers[row], out, at)
        at = copy_bytes(middle, 0, len(middle), out, at)
        at = _write_number(ends[row], out, at)
        out[at] = 0x7D
        at += 1
        offsets[row + 1] = at
    return offsets


@compiled
def _write_number(number: int, out: npt.NDArray[np.uint8], at: int) -> int:
    digits = 1
    power = 10
    while digits < _MOST_DIGITS and number >= power:
        digits += 1
        power *= 10
    for i in range(at + digits - 1, at - 1, -1):
        out[i] = 0x30 + number % 10
        number //= 10
    return at + digits
