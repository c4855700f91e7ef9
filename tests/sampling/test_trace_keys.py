"""Trace ids that are scrambled: back again, even, and by the secret."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sampling.trace_keys import round_keys, scramble, unscramble

words = st.integers(0, 2**64 - 1)


@given(st.lists(st.tuples(words, words), min_size=1), st.binary(min_size=16, max_size=16))
def test_a_scrambled_id_can_be_had_back(ids: list[tuple[int, int]], secret: bytes) -> None:
    high, low = (np.array(column, np.uint64) for column in zip(*ids, strict=True))
    keys = round_keys(secret)
    again = unscramble(*scramble(high, low, keys), keys)
    assert (again[0] == high).all()
    assert (again[1] == low).all()


def test_another_secret_scrambles_differently() -> None:
    ids = np.arange(10, dtype=np.uint64)
    one, other = (scramble(ids, ids, round_keys(bytes([n]) * 16)) for n in range(2))
    assert not (one[0] == other[0]).any()
    assert not (one[1] == other[1]).any()


@pytest.mark.parametrize("pattern", ["low", "high", "low in steps", "high in steps"])
@pytest.mark.parametrize("half", [0, 1])
def test_ids_of_any_pattern_spread_evenly(pattern: str, half: int) -> None:
    counted = np.arange(64_000, dtype=np.uint64) << np.uint64(32 if pattern.endswith("steps") else 0)
    nothing = np.zeros_like(counted)
    high, low = (counted, nothing) if pattern.startswith("high") else (nothing, counted)
    found = scramble(high, low, round_keys(bytes(16)))[half]
    for shift in (0, 32, 58):
        share = np.bincount((found >> np.uint64(shift) & np.uint64(63)).astype(np.int64), minlength=64)
        assert 800 < share.min() <= share.max() < 1200


def test_a_secret_has_16_bytes() -> None:
    with pytest.raises(ValueError, match="16 bytes, and not 3"):
        round_keys(b"abc")
