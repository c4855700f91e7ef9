"""How limits are split, and how they follow memory: tables."""

from __future__ import annotations

import pytest

from penstock.sampling.sampler_limits import SamplerLimits, regulate


@pytest.mark.parametrize(
    ("limit", "usage", "expected"),
    [
        (100, 131, 25),
        (100, 130, 59),
        (100, 120, 69),
        (100, 116, 74),
        (100, 115, 86),
        (100, 110, 90),
        (100, 101, 99),
        (100, 100, 100),
        (100, 85, 100),
        (80, 90, 80),
        (50, 84, 51),
        (75, 0, 76),
        (100, 84, 100),
        (99, 0, 100),
        (30, 120, 25),
        (26, 101, 25),
        (25, 200, 25),
    ],
)
def test_the_primary_cache_follows_memory(limit: int, usage: int, expected: int) -> None:
    assert regulate(limit, 100, usage, 100) == expected


def test_it_grows_by_two_percent() -> None:
    assert regulate(1000, 10_000, 0, 100) == 1020


def test_limits_are_split_over_shards_and_rounded_up() -> None:
    split = SamplerLimits(10, 5, 3, 1, 1000, 7, 8).split(4)
    assert split == SamplerLimits(3, 2, 1, 1, 250, 7, 8)
    assert SamplerLimits(10, None, 0, 0).split(8) == SamplerLimits(2, None, 0, 0)
