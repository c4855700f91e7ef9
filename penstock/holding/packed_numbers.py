"""Columns of numbers as few bytes, compiled.

A column is cut into blocks. A block has its numbers as differences to the least of them, each with as many bits as the
largest needs. Where that is less, it has their steps from one to the next instead, or says in a bit for each which are
the least, and has the others: few are zero where zero means none, or all but few. A block in which all numbers are the
last one before it takes one byte.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.compiled import Bytes, borrowing
from penstock.json.words import load_word, store_word

Numbers = npt.NDArray[np.int64]

BLOCK = 256
"""Numbers in a block: few enough that a rare large one makes few others large."""
SLACK = 16
"""So many bytes behind a column are written and read, and mean nothing."""
_PLAIN, _STEPS, _APART = range(3)
_WIDTHS = 65
"""The first byte of a block is the number of bits, from 0 to 64, and one of these times that."""
_SAME = 0xFF
"""Or this, if all are the same as the number before."""
_MARKS = BLOCK // 8
"""Bytes that say which numbers of a block are set apart."""
_WORTH_SETTING_APART = 8
"""Of fewer bits not much is to be saved."""
_WHOLE_SHIFTS = 57
"""A number of up to so many bits lies in the eight bytes that begin with its first one."""


def most_bytes(numbers: int) -> int:
    """Room for a column of so many."""
    return 8 * numbers + (17 + _MARKS) * (numbers // BLOCK + 1) + SLACK


@borrowing
def write_numbers(numbers: Numbers, out: Bytes, at: int) -> int:
    """Write a column; the place behind it."""
    before = np.int64(0)
    for start in range(0, len(numbers), BLOCK):
        block = numbers[start : start + BLOCK]
        last, low, high = before, block[0], block[0]
        low_step = high_step = block[0] - before
        for number in block:
            step = number - last
            low, high = min(low, number), max(high, number)
            low_step, high_step = min(low_step, step), max(high_step, step)
            last = number
        bits, step_bits = _bits_of(np.uint64(high - low)), _bits_of(np.uint64(high_step - low_step))
        kind, base = (_STEPS, low_step) if step_bits < bits else (_PLAIN, low)
        bits = min(bits, step_bits)
        if bits >= _WORTH_SETTING_APART:
            others, lowest = _others(block, low, high)
            rest = _bits_of(np.uint64(high - lowest))
            if 64 + len(block) + others * rest < bits * len(block):
                kind, base, bits = _APART, lowest, rest
        if bits == 0 and kind == _PLAIN and low == before:
            out[at] = _SAME
            at += 1
        else:
            out[at] = bits + kind * _WIDTHS
            store_word(out, at + 1, np.uint64(base))
            at += 9
            if kind == _APART:
                store_word(out, at, np.uint64(low))
                at = _mark(block, low, out, at + 8)
            at = _write_block(block, kind, before, low, base, bits, out, at)
        before = last
    return at


@borrowing
def read_numbers(buf: Bytes, at: int, numbers: Numbers) -> int:
    """Fill a column with what was written; the place behind it."""
    before = np.int64(0)
    for start in range(0, len(numbers), BLOCK):
        block = numbers[start : start + BLOCK]
        if buf[at] == _SAME:
            block[:] = before
            at += 1
            continue
        kind, bits = int(buf[at]) // _WIDTHS, int(buf[at]) % _WIDTHS
        base = np.int64(load_word(buf, at + 1))
        if kind == _APART:
            low, marks = np.int64(load_word(buf, at + 9)), at + 17
            at = _read_block(buf, marks + _MARKS, bits, base, block, low, marks)
        else:
            at = _read_block(buf, at + 9, bits, base, block, base, -1)
        if kind == _STEPS:
            for row in range(len(block)):
                before += block[row]
                block[row] = before
        before = block[-1]
    return at


@borrowing
def _bits_of(number: np.uint64) -> int:
    bits = 0
    while number != np.uint64(0):
        number >>= np.uint64(1)
        bits += 1
    return bits


@borrowing
def _others(block: Numbers, low: np.int64, high: np.int64) -> tuple[int, np.int64]:
    """How many are not the least, and the least of those."""
    others, lowest = 0, high
    for number in block:
        if number != low:
            others += 1
            lowest = min(lowest, number)
    return others, lowest


@borrowing
def _mark(block: Numbers, low: np.int64, out: Bytes, at: int) -> int:
    """Write which are the least."""
    for place in range(0, _MARKS, 8):
        store_word(out, at + place, np.uint64(0))
    for row in range(len(block)):
        if block[row] == low:
            out[at + (row >> 3)] |= 1 << (row & 7)
    return at + _MARKS


@borrowing
def _write_block(
    block: Numbers, kind: int, before: np.int64, low: np.int64, base: np.int64, bits: int, out: Bytes, at: int
) -> int:
    if bits == 0:
        return at
    word, used = np.uint64(0), 0
    for number in block:
        if kind == _APART and number == low:
            continue
        value = np.uint64(number - base)
        if kind == _STEPS:
            value -= np.uint64(before)
            before = number
        word |= value << np.uint64(used)
        used += bits
        if used >= 64:
            store_word(out, at, word)
            at += 8
            used -= 64
            # What of this number did not fit. Nothing, if it fitted exactly: no shift may be by a whole word.
            word = value >> np.uint64(bits - used) if used > 0 else np.uint64(0)
    store_word(out, at, word)
    return at + (used + 7) // 8


@borrowing
def _read_block(buf: Bytes, at: int, bits: int, base: np.int64, block: Numbers, low: np.int64, marks: int) -> int:
    mask = np.uint64(2**64 - 1) >> np.uint64(64 - bits) if bits > 0 else np.uint64(0)
    place = 0
    for row in range(len(block)):
        if marks >= 0 and buf[marks + (row >> 3)] >> (row & 7) & 1:
            block[row] = low
            continue
        first, shift = at + (place >> 3), np.uint64(place & 7)
        value = load_word(buf, first) >> shift
        if bits > _WHOLE_SHIFTS and shift > np.uint64(0):
            value |= np.uint64(buf[first + 8]) << (np.uint64(64) - shift)
        block[row] = np.int64(value & mask) + base
        place += bits
    return at + (place + 7) // 8
