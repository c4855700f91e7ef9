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
from penstock.siphash import Words, absorb_text, absorb_word, begin_hash, finish_hash, secret_words


class KeyHash:
    """One secret, so one way to hash. Two of them agree on nothing."""

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret_words(os.urandom(16) if secret is None else secret)

    def hash(self, entries: pa.RecordBatch, high: Words, low: Words) -> None:
        """Write the two halves of every entry's hash to ``high`` and ``low``."""
        namespaces, keys = entries.column("namespace"), entries.column("key")
        has_key = keys.is_valid().to_numpy(zero_copy_only=False)
        _hash_all(*_text(namespaces), *_text(keys), has_key, *self._secret, high, low)


def _text(array: pa.Array) -> tuple[Bytes, npt.NDArray[np.int32]]:
    """The bytes of a string array and where each string begins and ends in them."""
    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    content = np.frombuffer(data if data is not None else b"", np.uint8)
    # Whether a buffer could be written to would make another compiled function of it.
    places.flags.writeable = content.flags.writeable = False
    return content, places


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
        state = begin_hash(k0, k1)
        state = absorb_word(state, np.uint64(end - start) << np.uint64(1) | np.uint64(has_key[row]))
        state = absorb_text(state, names, start, end)
        if has_key[row]:
            start, end = key_places[row], key_places[row + 1]
            state = absorb_word(state, np.uint64(end - start))
            state = absorb_text(state, keys, start, end)
        high[row], low[row] = finish_hash(state)
