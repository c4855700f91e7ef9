"""Documents made anew around each element of arrays that were found in documents."""

from __future__ import annotations

import numpy as np

from penstock.compiled import Bytes, compiled
from penstock.json.arrow_text import copy_bytes
from penstock.json.containers import value_end
from penstock.json.find import Spans
from penstock.json.tokens import skip_whitespace


@compiled
def documents_around(
    buf: Bytes,
    starts: Spans,
    ends: Spans,
    counts: Spans,
    lefts: tuple[Bytes, Spans, Spans],
    rights: tuple[Bytes, Spans, Spans],
) -> tuple[Bytes, Spans]:
    """For each element of each array a document: the row's left text, the element, the row's right text. Returns all
    text and the offsets in it.

    A row whose count is zero gives one document: its left text and its right text, with what is at ``[starts, ends)``
    between them. ``lefts`` and ``rights`` are a buffer, and per row a start and an end in it.
    """
    (left_buf, left_starts, left_ends), (right_buf, right_starts, right_ends) = lefts, rights
    size = 0
    rows_out = 0
    for row in range(len(starts)):
        around = left_ends[row] - left_starts[row] + right_ends[row] - right_starts[row]
        size += max(counts[row], 1) * around + ends[row] - starts[row]
        rows_out += max(counts[row], 1)
    out = np.empty(size, np.uint8)
    offsets = np.zeros(rows_out + 1, np.int64)
    at = 0
    made = 0
    for row in range(len(starts)):
        end = ends[row]
        i = starts[row]
        if counts[row] > 0:
            i = skip_whitespace(buf, i + 1, end)
        for _ in range(max(counts[row], 1)):
            stop = value_end(buf, i, end) if counts[row] > 0 else end
            at = copy_bytes(left_buf, left_starts[row], left_ends[row], out, at)
            at = copy_bytes(buf, i, stop, out, at)
            at = copy_bytes(right_buf, right_starts[row], right_ends[row], out, at)
            made += 1
            offsets[made] = at
            if counts[row] > 0:
                i = skip_whitespace(buf, stop, end)
                i = skip_whitespace(buf, i + 1, end)
    return out[:at], offsets
