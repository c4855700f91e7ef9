"""Steps over whole JSON values in a buffer of bytes: objects and arrays with all that is in them.

As strict as ``tokens``, and with the same way to say what is wrong. Nothing recurses: depth is bounded by the document
alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.compiled import Bytes, compiled, inlined
from penstock.json.tokens import (
    CLOSE_ARRAY,
    CLOSE_OBJECT,
    COLON,
    COMMA,
    OPEN_ARRAY,
    OPEN_OBJECT,
    scalar_end,
    skip_whitespace,
    string_end,
)

Int64s = npt.NDArray[np.int64]


@compiled
def skip_value(buf: Bytes, i: int, end: int) -> int:
    """The index after the value whose first byte is at ``i`` (not whitespace), or -1."""
    j = value_end(buf, i, end)
    return j if j >= 0 else -1


@compiled
def value_end(buf: Bytes, i: int, end: int) -> int:
    """Like ``skip_value``, with ``~position`` for a broken one."""
    if i >= end:
        return ~i
    c = buf[i]
    if c in (OPEN_OBJECT, OPEN_ARRAY):
        return container_end(buf, i, end)
    return scalar_end(buf, i, end)


@compiled
def container_end(buf: Bytes, i: int, end: int) -> int:
    """The index after the object or array at ``i``, or ``~position``."""
    # One bit per open container (1 for an object) says which bracket must close it; 63 levels fit in an integer.
    open_objects = 0
    depth = 0
    while True:
        c = buf[i]
        if c in (OPEN_OBJECT, OPEN_ARRAY):
            if depth == 63:
                return _deep_container_end(buf, i, end, open_objects)
            is_object = c == OPEN_OBJECT
            open_objects = (open_objects << 1) | (1 if is_object else 0)
            depth += 1
            i = skip_whitespace(buf, i + 1, end)
            if i >= end:
                return ~i
            if buf[i] != (CLOSE_OBJECT if is_object else CLOSE_ARRAY):
                if is_object:
                    i = key_end(buf, i, end)
                    if i < 0:
                        return i
                continue
        else:
            i = scalar_end(buf, i, end)
            if i < 0:
                return i
        # A value has ended (or an empty container is about to): close what ends here, then go to the next value.
        while True:
            i = skip_whitespace(buf, i, end)
            if i >= end:
                return ~i
            c = buf[i]
            is_object = (open_objects & 1) == 1
            if c == (CLOSE_OBJECT if is_object else CLOSE_ARRAY):
                i += 1
                open_objects >>= 1
                depth -= 1
                if depth == 0:
                    return i
                continue
            break
        if c != COMMA:
            return ~i
        i = skip_whitespace(buf, i + 1, end)
        if is_object:
            i = key_end(buf, i, end)
            if i < 0:
                return i
        if i >= end:
            return ~i


@inlined
def key_end(buf: Bytes, i: int, end: int) -> int:
    """From a key's opening quote to the first byte of its value (over colon and whitespace), or ``~position``."""
    i = string_end(buf, i, end)
    return i if i < 0 else value_start(buf, i, end)


@inlined
def value_start(buf: Bytes, i: int, end: int) -> int:
    """From after a key's closing quote to the first byte of its value, or ``~position``."""
    i = skip_whitespace(buf, i, end)
    if i >= end or buf[i] != COLON:
        return ~i
    i = skip_whitespace(buf, i + 1, end)
    return i if i < end else ~i


@compiled
def _deep_container_end(buf: Bytes, i: int, end: int, outer: int) -> int:
    """``container_end`` from the container at ``i``, inside 63 others whose kinds are the bits of ``outer``."""
    open_objects = np.zeros(256, np.bool_)
    for level in range(63):
        open_objects[level] = ((outer >> (62 - level)) & 1) == 1
    depth = 63
    while True:
        c = buf[i]
        if c in (OPEN_OBJECT, OPEN_ARRAY):
            is_object = c == OPEN_OBJECT
            if depth == len(open_objects):
                grown = np.zeros(2 * depth, np.bool_)
                grown[:depth] = open_objects
                open_objects = grown
            open_objects[depth] = is_object
            depth += 1
            i = skip_whitespace(buf, i + 1, end)
            if i >= end:
                return ~i
            if buf[i] != (CLOSE_OBJECT if is_object else CLOSE_ARRAY):
                if is_object:
                    i = key_end(buf, i, end)
                    if i < 0:
                        return i
                continue
        else:
            i = scalar_end(buf, i, end)
            if i < 0:
                return i
        while True:
            i = skip_whitespace(buf, i, end)
            if i >= end:
                return ~i
            c = buf[i]
            is_object = open_objects[depth - 1]
            if c == (CLOSE_OBJECT if is_object else CLOSE_ARRAY):
                i += 1
                depth -= 1
                if depth == 0:
                    return i
                continue
            break
        if c != COMMA:
            return ~i
        i = skip_whitespace(buf, i + 1, end)
        if is_object:
            i = key_end(buf, i, end)
            if i < 0:
                return i
        if i >= end:
            return ~i


@compiled
def count_elements(buf: Bytes, starts: Int64s, ends: Int64s, chosen: npt.NDArray[np.bool_]) -> Int64s:
    """How many elements the well-formed arrays at ``[starts, ends)`` have; zero for those that are not chosen."""
    counts = np.zeros(len(starts), np.int64)
    for row in range(len(starts)):
        if not chosen[row]:
            continue
        end = ends[row]
        i = skip_whitespace(buf, starts[row] + 1, end)
        while buf[i] != CLOSE_ARRAY:
            i = skip_whitespace(buf, value_end(buf, i, end), end)
            counts[row] += 1
            if buf[i] == COMMA:
                i = skip_whitespace(buf, i + 1, end)
    return counts


@compiled
def element_spans(buf: Bytes, start: int, end: int, count: int) -> tuple[Int64s, Int64s]:
    """Where the elements of the well-formed array at ``[start, end)`` begin and end; it has so many."""
    starts = np.empty(count, np.int64)
    ends = np.empty(count, np.int64)
    i = skip_whitespace(buf, start + 1, end)
    for element in range(count):
        starts[element] = i
        ends[element] = value_end(buf, i, end)
        # Over the comma; after the last element, over the bracket.
        i = skip_whitespace(buf, ends[element], end)
        i = skip_whitespace(buf, i + 1, end)
    return starts, ends
