"""Keys for trace ids: the same 128 bits, scrambled by a secret, and back.

Whoever sends spans chooses their trace ids. Scrambled, ids of any pattern spread evenly over shards and hash buckets,
and nobody who lacks the secret can aim at one. Nothing is lost: whoever has the secret gets the id again.

A Feistel network of four rounds over the two big-endian words of the id.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from penstock.compiled import borrowing, compiled

Words = npt.NDArray[np.uint64]
RoundKeys = tuple[np.uint64, ...]

_ROUNDS = 4


def round_keys(secret: bytes) -> RoundKeys:
    """What ``scramble`` and ``unscramble`` need of a secret of 16 bytes: two words for each round."""
    if len(secret) != 16:
        raise ValueError(f"a secret has 16 bytes, and not {len(secret)}")
    drawn = b"".join(blake2b(bytes([part]), digest_size=32, key=secret).digest() for part in range(_ROUNDS // 2))
    return tuple(np.frombuffer(drawn, "<u8"))


def scramble(high: Words, low: Words, keys: RoundKeys) -> tuple[Words, Words]:
    """The keys of trace ids, each given as its two big-endian words."""
    return _scramble_all(np.array(high), np.array(low), keys)


def unscramble(high: Words, low: Words, keys: RoundKeys) -> tuple[Words, Words]:
    """The trace ids of keys."""
    return _unscramble_all(np.array(high), np.array(low), keys)


@borrowing
def scramble_one(high: np.uint64, low: np.uint64, keys: RoundKeys) -> tuple[np.uint64, np.uint64]:
    for turn in range(_ROUNDS):
        high, low = low, high ^ _mix(low, keys[2 * turn], keys[2 * turn + 1])
    return high, low


@borrowing
def unscramble_one(high: np.uint64, low: np.uint64, keys: RoundKeys) -> tuple[np.uint64, np.uint64]:
    for back in range(_ROUNDS):
        turn = _ROUNDS - 1 - back
        high, low = low ^ _mix(high, keys[2 * turn], keys[2 * turn + 1]), high
    return high, low


@borrowing
def _mix(word: np.uint64, first: np.uint64, second: np.uint64) -> np.uint64:
    word = (word ^ first) * np.uint64(0xFF51AFD7ED558CCD)
    word = (word ^ word >> np.uint64(33)) * np.uint64(0xC4CEB9FE1A85EC53)
    word = ((word ^ word >> np.uint64(29)) + second) * np.uint64(0x9E3779B97F4A7C15)
    return word ^ word >> np.uint64(32)


@compiled
def _scramble_all(high: Words, low: Words, keys: RoundKeys) -> tuple[Words, Words]:
    highs, lows = np.empty_like(high), np.empty_like(low)
    for row in range(len(high)):
        highs[row], lows[row] = scramble_one(high[row], low[row], keys)
    return highs, lows


@compiled
def _unscramble_all(high: Words, low: Words, keys: RoundKeys) -> tuple[Words, Words]:
    highs, lows = np.empty_like(high), np.empty_like(low)
    for row in range(len(high)):
        highs[row], lows[row] = unscramble_one(high[row], low[row], keys)
    return highs, lows
