"""Adds members at the end of objects of a batch, by position: every byte that was there stays as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.compiled import Bytes, compiled
from penstock.json.arrow_text import arrow_array, copy_bytes
from penstock.json.documents import documents
from penstock.json.find import Spans
from penstock.json.tokens import COMMA, OPEN_OBJECT

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Insertion:
    """One member for each row that has an object for it."""

    ends: Spans
    """Per row where the object ends in the documents' buffer; -1: nothing is inserted."""
    which: Spans
    """Per row the number of its member."""
    members: pa.BinaryArray
    """The members' JSON text, ``"key":value``."""


def inserted(data: pa.BinaryArray, insertions: Sequence[Insertion]) -> pa.BinaryArray:
    """The documents with all insertions made. Those into the same object come in the order that is given here."""
    docs = documents(data)
    texts = documents(pa.concat_arrays([insertion.members for insertion in insertions]))
    firsts = np.cumsum([0, *(len(insertion.members) for insertion in insertions)])
    ends = np.stack([insertion.ends for insertion in insertions])
    which = np.stack([insertion.which + first for insertion, first in zip(insertions, firsts, strict=False)])
    added = np.where(ends >= 0, np.diff(texts.offsets)[which] + 1, 0).sum()
    out = np.empty(int(docs.offsets[-1] - docs.offsets[0] + added), np.uint8)
    offsets = _insert(docs.buffer, docs.offsets, ends, which, texts.buffer, texts.offsets, out)
    return arrow_array(data.type, out[: offsets[-1]], offsets, docs.valid)


def extended(buffer: Bytes, starts: Spans, ends: Spans, members: pa.BinaryArray) -> pa.BinaryArray:
    """The objects at some spans of a buffer, with one or more members added; null where ``members`` is."""
    more = documents(members)
    out = np.empty(int((ends - starts).sum() + np.diff(more.offsets).sum()) + len(starts), np.uint8)
    offsets = _extend(buffer, starts, ends, more.buffer, more.offsets, more.valid, out)
    return arrow_array(pa.binary(), out[: offsets[-1]], offsets, more.valid)


@compiled
def _last(buf: Bytes, end: int) -> int:
    """The end of the last member of the object that ends at ``end``, or of its bracket if it is empty."""
    last = end - 1
    while buf[last - 1] <= 0x20:
        last -= 1
    return last


@compiled
def _insert(
    buf: Bytes,
    offsets: Spans,
    ends: Spans,
    which: Spans,
    members: Bytes,
    member_offsets: Spans,
    out: npt.NDArray[np.uint8],
) -> Spans:
    out_offsets = np.zeros(len(offsets), np.int64)
    at = 0
    for row in range(len(offsets) - 1):
        mark = offsets[row]
        done = -1
        while True:
            # The next object from the left: its end identifies it.
            end = -1
            for one in range(len(ends)):
                if ends[one, row] > done and (end < 0 or ends[one, row] < end):
                    end = ends[one, row]
            if end < 0:
                break
            done = end
            last = _last(buf, end)
            at = copy_bytes(buf, mark, last, out, at)
            mark = last
            empty = buf[last - 1] == OPEN_OBJECT
            for one in range(len(ends)):
                if ends[one, row] == end:
                    if not empty:
                        out[at] = COMMA
                        at += 1
                    empty = False
                    text = which[one, row]
                    at = copy_bytes(members, member_offsets[text], member_offsets[text + 1], out, at)
        at = copy_bytes(buf, mark, offsets[row + 1], out, at)
        out_offsets[row + 1] = at
    return out_offsets


@compiled
def _extend(
    buf: Bytes,
    starts: Spans,
    ends: Spans,
    members: Bytes,
    member_offsets: Spans,
    valid: Flags,
    out: npt.NDArray[np.uint8],
) -> Spans:
    offsets = np.zeros(len(starts) + 1, np.int64)
    at = 0
    for row in range(len(starts)):
        if valid[row]:
            last = _last(buf, ends[row])
            at = copy_bytes(buf, starts[row], last, out, at)
            if buf[last - 1] != OPEN_OBJECT:
                out[at] = COMMA
                at += 1
            at = copy_bytes(members, member_offsets[row], member_offsets[row + 1], out, at)
            at = copy_bytes(buf, last, ends[row], out, at)
        offsets[row + 1] = at
    return offsets
