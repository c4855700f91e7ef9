"""The key of a record: the values of some of its fields, as 128 bits of a keyed hash.

Values are the same if they are of one kind and mean the same: text by its characters however it is escaped, numbers by
their value however they are spelled (every digit counts), objects and arrays by their JSON text. Keys of other fields
are other keys, whatever their values.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.compiled import Bytes, borrowing
from penstock.json.find import Found, Spans, find
from penstock.json.paths import Path
from penstock.json.strings import has_escape, unescape
from penstock.json.tokens import FLOAT, INT, NULL, STRING
from penstock.siphash import State, Words, absorb_text, absorb_word, begin_hash, finish_hash, secret_words

Flags = npt.NDArray[np.bool_]

_MINUS, _POINT, _ZERO, _NINE, _SMALL_E, _BIG_E = 0x2D, 0x2E, 0x30, 0x39, 0x65, 0x45
_LARGEST_EXPONENT = 10**15


class FieldKeys:
    """``secret``, of 16 bytes, is the hash's own key: keys are compared only under one secret."""

    def __init__(self, paths: Sequence[Path], secret: bytes) -> None:
        self._paths = paths
        # State outlives a change of the fields: the values of one must not be taken for those of another.
        self._secret = secret_words(blake2b(json.dumps(paths).encode(), digest_size=16, key=secret).digest())

    def hash(self, data: pa.Array) -> tuple[Words, Words, Flags]:
        """The two halves of every record's key, and which records have one: all fields are there and not null."""
        return self.hash_found(find(data, self._paths))

    def hash_found(self, found: Found) -> tuple[Words, Words, Flags]:
        """The same, where the key's fields were found already, before others."""
        fields = len(self._paths)
        kind, starts, ends = found.kind[:, :fields], found.value_start[:, :fields], found.value_end[:, :fields]
        high, low = np.empty((2, len(found.valid)), np.uint64)
        kept = found.valid & (kind > NULL).all(axis=1)
        scratch = np.empty(int((ends - starts).max(initial=0)), np.uint8)
        _hash_all(found.buffer, kind, starts, ends, kept, scratch, *self._secret, high, low)
        return high, low, kept


@borrowing
def _hash_all(
    buf: Bytes,
    kind: npt.NDArray[np.int8],
    starts: Spans,
    ends: Spans,
    kept: Flags,
    scratch: npt.NDArray[np.uint8],
    k0: np.uint64,
    k1: np.uint64,
    high: Words,
    low: Words,
) -> None:
    for row in range(len(kept)):
        if not kept[row]:
            high[row] = low[row] = np.uint64(0)
            continue
        state = begin_hash(k0, k1)
        for path in range(kind.shape[1]):
            start, end = starts[row, path], ends[row, path]
            if kind[row, path] == INT or kind[row, path] == FLOAT:
                state = _absorb_number(state, buf, start, end, scratch)
            elif kind[row, path] == STRING and has_escape(buf, start, end):
                length = unescape(buf, start + 1, end - 1, scratch, 0)
                state = absorb_word(state, np.uint64(length) << np.uint64(4) | np.uint64(STRING))
                state = absorb_text(state, scratch, 0, length)
            else:
                inside = 1 if kind[row, path] == STRING else 0
                length = end - start - 2 * inside
                state = absorb_word(state, np.uint64(length) << np.uint64(4) | np.uint64(kind[row, path]))
                state = absorb_text(state, buf, start + inside, end - inside)
        high[row], low[row] = finish_hash(state)


@borrowing
def _absorb_number(state: State, buf: Bytes, start: int, end: int, scratch: npt.NDArray[np.uint8]) -> State:
    """As its digits without zeros around them, its sign and the power of ten of its last digit."""
    negative = buf[start] == _MINUS
    i = start + negative
    digits = kept = 0
    power = 0
    behind_point = False
    while i < end and buf[i] != _SMALL_E and buf[i] != _BIG_E:
        if buf[i] == _POINT:
            behind_point = True
        else:
            power -= behind_point
            if digits > 0 or buf[i] != _ZERO:
                scratch[digits] = buf[i]
                digits += 1
                if buf[i] != _ZERO:
                    kept = digits
        i += 1
    power += digits - kept
    if kept == 0:
        return absorb_word(absorb_word(state, np.uint64(INT)), np.uint64(0))
    if i < end:
        power += _exponent(buf, i + 1, end)
    state = absorb_word(state, np.uint64(kept) << np.uint64(5) | np.uint64(negative) << np.uint64(4) | np.uint64(INT))
    state = absorb_word(state, np.uint64(power))
    return absorb_text(state, scratch, 0, kept)


@borrowing
def _exponent(buf: Bytes, start: int, end: int) -> int:
    """No number that can be told apart has an exponent beyond the largest."""
    negative = buf[start] == _MINUS
    value = 0
    for i in range(start, end):
        if _ZERO <= buf[i] <= _NINE and value < _LARGEST_EXPONENT:
            value = 10 * value + (buf[i] - _ZERO)
    return -value if negative else value
