"""Writes the events of a batch as addEvents has them: head, attributes, delivery id. Values stay as they are written.

Most of an event stands in its document as it is to be sent: neighbours whose names are theirs already are copied
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.compiled import Bytes, borrowing, inlined
from penstock.json.words import load_word, store_word

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Int8s = npt.NDArray[np.int8]
Flags = npt.NDArray[np.bool_]
Out = npt.NDArray[np.uint8]

WORD = 8
"""Bytes are copied by so many: behind each stretch there must be as many that may be overwritten."""
_MOST_DIGITS = 20
_COMMA, _QUOTE, _DASH, _ZERO = 0x2C, 0x22, 0x2D, 0x30


class Texts(NamedTuple):
    """Texts by number, end to end, with the bytes of a word behind them."""

    data: Bytes
    ends: Int64s


def texts(values: Sequence[bytes]) -> Texts:
    # Writable or not, it is one kind of array.
    data = np.frombuffer(b"".join([*values, bytes(WORD)]), np.uint8)
    return Texts(data, np.cumsum([0, *map(len, values)], dtype=np.int64))


class Attributes(NamedTuple):
    """The leaves of the documents, and what is made of each column."""

    record: Int32s
    column: Int32s
    start: Int64s
    end: Int64s
    names: Texts
    """Of each column, with quotes and the colon."""
    is_top: Flags
    """Whether a column's name stands in the document itself, and not in an object in it."""
    role: Int8s
    """Of each column: which bit of ``taken`` says that it is no attribute."""


class Heads(NamedTuple):
    """What stands in each event beside its attributes."""

    taken: Int8s
    severity: Int8s
    nanos: Int64s
    thread: Int64s
    """The number of its text, or -1."""
    log: Int64s
    origin: Int64s
    """The number of what stands before the partition in the delivery id."""
    partition: Int64s
    offset: Int64s
    item: Int64s
    threads: Texts
    logs: Texts
    origins: Texts


def write_bodies(
    buf: Bytes, attributes: Attributes, heads: Heads, around: Texts, room: Int64s, plain: Flags, out: Out
) -> Int64s:
    """Write the events of all rows that are plain; returns where each row ends. An event beyond its row's room is left
    out, and loses its flag."""
    ends = np.zeros(len(plain) + 1, np.int64)
    _write_bodies(buf, attributes, heads, around, room, plain, out, ends)
    return ends


@borrowing
def _write_bodies(
    buf: Bytes, attributes: Attributes, heads: Heads, around: Texts, room: Int64s, plain: Flags, out: Out, ends: Int64s
) -> None:
    at = 0
    first = 0
    count = len(attributes.record)
    for row in range(len(plain)):
        last = first
        while last < count and attributes.record[last] == row:
            last += 1
        if plain[row]:
            begin = at
            at = _write_head(heads, around, row, out, at)
            is_first = at
            at = _write_attributes(buf, attributes, heads.taken[row], first, last, out, at)
            at = _write_id(heads, around, row, at == is_first, out, at)
            at = _copy_text(around, _END, out, at)
            if at - begin > room[row]:
                plain[row] = False
                at = begin
        first = last
        ends[row + 1] = at


_SEVERITY, _TIME, _ATTRIBUTES, _ID, _END = range(5)
"""The numbers of what stands between the parts of an event."""


def around_events(id_attribute: bytes | None) -> Texts:
    """``id_attribute``: its name, with quotes and the colon."""
    the_id = b"" if id_attribute is None else id_attribute + b'"'
    return texts([b'"sev":', b',"ts":"', b',"attrs":{', the_id, b"}},"])


EXTRA_BYTES = 4 * _MOST_DIGITS + WORD
"""By so many ``most_bytes`` may say too much of an event whose attributes are all written."""


def most_bytes(attributes: Attributes, heads: Heads, around: Texts) -> Int64s:
    """No more than these are written for each row."""
    sizes = np.full(len(heads.nanos), len(around.data) + EXTRA_BYTES, np.int64)
    for numbers, known in ((heads.thread, heads.threads), (heads.log, heads.logs), (heads.origin, heads.origins)):
        sizes += np.append(np.diff(known.ends), 0)[numbers]
    _add_bytes(attributes, sizes)
    return sizes


@borrowing
def _add_bytes(attributes: Attributes, sizes: Int64s) -> None:
    ends = attributes.names.ends
    for leaf in range(len(attributes.record)):
        column = attributes.column[leaf]
        size = 1 + attributes.end[leaf] - attributes.start[leaf] + ends[column + 1] - ends[column]
        sizes[attributes.record[leaf]] += size


@borrowing
def _write_head(heads: Heads, around: Texts, row: int, out: Out, at: int) -> int:
    out[at] = 0x7B
    at += 1
    if heads.thread[row] >= 0:
        at = _copy_text(heads.threads, heads.thread[row], out, at)
    at = _copy_text(around, _SEVERITY, out, at)
    out[at] = _ZERO + heads.severity[row]
    at = _copy_text(around, _TIME, out, at + 1)
    at = _write_number(heads.nanos[row], out, at)
    out[at] = _QUOTE
    at += 1
    if heads.log[row] >= 0:
        at = _copy_text(heads.logs, heads.log[row], out, at)
    return _copy_text(around, _ATTRIBUTES, out, at)


@borrowing
def _write_attributes(buf: Bytes, attributes: Attributes, taken: int, first: int, last: int, out: Out, at: int) -> int:
    ends = attributes.names.ends
    begin = at
    # What is to be copied together.
    run_start = 0
    run_end = 0
    for leaf in range(first, last):
        column = attributes.column[leaf]
        if (taken >> attributes.role[column]) & 1:
            continue
        start = attributes.start[leaf]
        # A name that takes just the bytes between two values is written as we would: no other way is as short.
        if run_end and attributes.is_top[column] and start - run_end == 1 + ends[column + 1] - ends[column]:
            run_end = attributes.end[leaf]
            continue
        at = _copy(buf, run_start, run_end, out, at)
        if at > begin:
            out[at] = _COMMA
            at += 1
        at = _copy_text(attributes.names, column, out, at)
        run_start = start
        run_end = attributes.end[leaf]
    return _copy(buf, run_start, run_end, out, at)


@borrowing
def _write_id(heads: Heads, around: Texts, row: int, is_first: bool, out: Out, at: int) -> int:
    if around.ends[_ID + 1] == around.ends[_ID]:
        return at
    if not is_first:
        out[at] = _COMMA
        at += 1
    at = _copy_text(around, _ID, out, at)
    at = _copy_text(heads.origins, heads.origin[row], out, at)
    at = _write_number(heads.partition[row], out, at)
    out[at] = _DASH
    at = _write_number(heads.offset[row], out, at + 1)
    if heads.item[row]:
        out[at] = _DASH
        at = _write_number(heads.item[row], out, at + 1)
    out[at] = _QUOTE
    return at + 1


@borrowing
def _write_number(number: int, out: Out, at: int) -> int:
    if number < 0:
        out[at] = _DASH
        at += 1
        number = -number
    digits = 1
    rest = number // 10
    while rest:
        digits += 1
        rest //= 10
    for k in range(at + digits - 1, at - 1, -1):
        out[k] = _ZERO + number % 10
        number //= 10
    return at + digits


@inlined
def _copy_text(source: Texts, number: int, out: Out, at: int) -> int:
    return _copy(source.data, source.ends[number], source.ends[number + 1], out, at)


@borrowing
def _copy(source: Bytes, start: int, end: int, out: Out, at: int) -> int:
    """Copy a stretch, a word at a time; the bytes behind its end are overwritten."""
    stop = at + end - start
    i = start
    while i < end and i + WORD <= len(source):
        store_word(out, at, load_word(source, i))
        i += WORD
        at += WORD
    while i < end:
        out[at] = source[i]
        i += 1
        at += 1
    return stop
