"""What makes two entries the same to compaction: their namespace and, where they have one, their own key.

Each pair is told apart by 128 bits of SipHash-2-4 under a key that is drawn anew for every run. Among a billion
different pairs, two are mistaken for one with a chance of 1 in 10^20, and nobody who chooses keys can do better than
chance, because the hash's own key is never seen. A pair goes in as whole words with its lengths, so no two different
pairs go in alike.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.compiled import Bytes, compiled
from penstock.json.words import load_word

Words = npt.NDArray[np.uint64]


class KeyHash:
    """One secret, so one way to hash. Two of them agree on nothing."""

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = np.frombuffer(os.urandom(16) if secret is None else secret, "<u8")

    def hash(self, entries: pa.RecordBatch, high: Words, low: Words) -> None:
        """Write the two halves of every entry's hash to ``high`` and ``low``."""
        namespaces, keys = entries.column("namespace"), entries.column("key")
        has_key = keys.is_valid().to_numpy(zero_copy_only=False)
        _hash_all(*_text(namespaces), *_text(keys), has_key, self._secret[0], self._secret[1], high, low)


def _text(array: pa.Array) -> tuple[Bytes, npt.NDArray[np.int32]]:
    """The bytes of a string array and where each string begins and ends in them."""
    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8), places


@compiled
def _hash_all(
    names: Bytes,
    name_places: npt.NDArray[np.int32],
    keys: Bytes,
    key_places: npt.NDArray[np.int32],
    has_key: npt.NDArray[np.bool_],
    k0: np.uint64,
    k1: np.uint64,
    high: Words,
    low: Words,
) -> None:
    for row in range(len(has_key)):
        start, end = name_places[row], name_places[row + 1]
        v0 = k0 ^ np.uint64(0x736F6D6570736575)
        v1 = k1 ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE)
        v2 = k0 ^ np.uint64(0x6C7967656E657261)
        v3 = k1 ^ np.uint64(0x7465646279746573)
        word = np.uint64(end - start) << np.uint64(1) | np.uint64(has_key[row])
        v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, word)
        v0, v1, v2, v3 = _absorb_text(v0, v1, v2, v3, names, start, end)
        if has_key[row]:
            start, end = key_places[row], key_places[row + 1]
            v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, np.uint64(end - start))
            v0, v1, v2, v3 = _absorb_text(v0, v1, v2, v3, keys, start, end)
        v2 ^= np.uint64(0xEE)
        for _ in range(4):
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        high[row] = v0 ^ v1 ^ v2 ^ v3
        v1 ^= np.uint64(0xDD)
        for _ in range(4):
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        low[row] = v0 ^ v1 ^ v2 ^ v3


State = tuple[np.uint64, np.uint64, np.uint64, np.uint64]


@compiled
def _absorb_text(v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64, buf: Bytes, start: int, end: int) -> State:
    i = start
    while i + 8 <= end:
        v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, load_word(buf, i))
        i += 8
    if i < end:
        word = np.uint64(0)
        for k in range(end - i):
            word |= np.uint64(buf[i + k]) << np.uint64(8 * k)
        v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, word)
    return v0, v1, v2, v3


@compiled
def _absorb(v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64, word: np.uint64) -> State:
    v3 ^= word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ word, v1, v2, v3


@compiled
def _round(v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64) -> State:
    v0 += v1
    v1 = (v1 << np.uint64(13) | v1 >> np.uint64(51)) ^ v0
    v0 = v0 << np.uint64(32) | v0 >> np.uint64(32)
    v2 += v3
    v3 = (v3 << np.uint64(16) | v3 >> np.uint64(48)) ^ v2
    v0 += v3
    v3 = (v3 << np.uint64(21) | v3 >> np.uint64(43)) ^ v0
    v2 += v1
    v1 = (v1 << np.uint64(17) | v1 >> np.uint64(47)) ^ v2
    v2 = v2 << np.uint64(32) | v2 >> np.uint64(32)
    return v0, v1, v2, v3
