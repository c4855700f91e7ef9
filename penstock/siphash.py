"""SipHash-2-4 with 128 bits, for compiled code: a keyed hash, so nobody who chooses the text can choose the hash.

Begin, absorb words and text, finish. Text is absorbed without its length: whoever absorbs several texts must absorb
their lengths too, so that no two different rows of texts go in alike.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.compiled import Bytes, compiled
from penstock.json.words import load_word

Words = npt.NDArray[np.uint64]
State = tuple[np.uint64, np.uint64, np.uint64, np.uint64]


def secret_words(secret: bytes) -> tuple[np.uint64, np.uint64]:
    """The two words of a key of 16 bytes."""
    first, second = np.frombuffer(secret, "<u8")
    return first, second


@compiled
def begin_hash(k0: np.uint64, k1: np.uint64) -> State:
    return (
        k0 ^ np.uint64(0x736F6D6570736575),
        k1 ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE),
        k0 ^ np.uint64(0x6C7967656E657261),
        k1 ^ np.uint64(0x7465646279746573),
    )


@compiled
def absorb_word(state: State, word: np.uint64) -> State:
    v0, v1, v2, v3 = state
    v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ word, v1, v2, v3


@compiled
def absorb_text(state: State, buf: Bytes, start: int, end: int) -> State:
    i = start
    while i + 8 <= end:
        state = absorb_word(state, load_word(buf, i))
        i += 8
    if i < end:
        word = np.uint64(0)
        for k in range(end - i):
            word |= np.uint64(buf[i + k]) << np.uint64(8 * k)
        state = absorb_word(state, word)
    return state


@compiled
def finish_hash(state: State) -> tuple[np.uint64, np.uint64]:
    v0, v1, v2, v3 = state
    v2 ^= np.uint64(0xEE)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    high = v0 ^ v1 ^ v2 ^ v3
    v1 ^= np.uint64(0xDD)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return high, v0 ^ v1 ^ v2 ^ v3


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
