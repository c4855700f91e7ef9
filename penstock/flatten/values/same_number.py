"""Whether two spellings are one number: ``0.10``, ``1e-1`` and ``0.1`` are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.compiled import Bytes, compiled
from penstock.flatten.values.value_spans import Bools, Int64s, text_spans
from penstock.json.tokens import exponent_at


def same_numbers(one: pa.Array, other: pa.Array) -> Bools:
    """Row by row, of texts that spell numbers as JSON does; an exponent may have leading zeros and a plus."""
    a, b = text_spans(one), text_spans(other)
    return _same(a.buffer, a.start, a.end, b.buffer, b.start, b.end)


@compiled
def _same(a: Bytes, a_start: Int64s, a_end: Int64s, b: Bytes, b_start: Int64s, b_end: Int64s) -> Bools:
    found = np.zeros(len(a_start), np.bool_)
    for k in range(len(a_start)):
        i, stop, size = significant(a, a_start[k], a_end[k])
        j, last, other = significant(b, b_start[k], b_end[k])
        if i == stop or j == last:
            found[k] = i == stop and j == last
            continue
        equal = size == other and (a[a_start[k]] == 0x2D) == (b[b_start[k]] == 0x2D)
        while equal and (i < stop or j < last):
            if i < stop and a[i] == 0x2E:
                i += 1
                continue
            if j < last and b[j] == 0x2E:
                j += 1
                continue
            one = a[i] if i < stop else 0x30
            two = b[j] if j < last else 0x30
            equal = one == two
            i += 1
            j += 1
        found[k] = equal
    return found


@compiled
def significant(buf: Bytes, i: int, end: int) -> tuple[int, int, int]:
    """Where a number's digits begin, its leading zeros left out, and end (the same place: it is zero), and the power of
    ten of the first one."""
    first = -1
    before_point = 0
    zeros_after = 0
    point = False
    while i < end and buf[i] != 0x65 and buf[i] != 0x45:
        c = buf[i]
        if c == 0x2E:
            point = True
        elif c >= 0x30 and c <= 0x39:
            if first < 0 and c != 0x30:
                first = i
            if first >= 0:
                before_point += 0 if point else 1
            elif point:
                zeros_after += 1
        i += 1
    stop = i
    power = exponent_at(buf, i, end)
    if first < 0:
        return stop, stop, 0
    return first, stop, (before_point - 1 if before_point else -1 - zeros_after) + power
