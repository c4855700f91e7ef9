"""Columns of numbers come back as they were, and take as many bits as they need."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.holding.packed_numbers import BLOCK, SLACK, most_bytes, read_numbers, write_numbers

LENGTHS = (0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7)


def written(*columns: np.ndarray) -> np.ndarray:
    out, end = np.full(sum(most_bytes(len(column)) for column in columns), 0xA5, np.uint8), 0
    for column in columns:
        end = write_numbers(column, out, end)
    return out[: end + SLACK]


def read(content: np.ndarray, *lengths: int) -> list[np.ndarray]:
    whole = np.frombuffer(content.tobytes(), np.uint8)
    columns, at = [np.empty(length, np.int64) for length in lengths], 0
    for column in columns:
        at = read_numbers(whole, at, column)
    assert at + SLACK == len(whole)
    return columns


@pytest.mark.parametrize("bits", range(65))
def test_numbers_of_every_width_come_back(bits: int) -> None:
    rng = np.random.default_rng(bits)
    for length in LENGTHS:
        numbers = (
            (rng.integers(0, 2**64, length, np.uint64) >> np.uint64(64 - bits)) if bits else np.zeros(length, "u8")
        )
        jumping = numbers.view(np.int64)
        climbing = np.cumsum(jumping)
        assert [each.tolist() for each in read(written(jumping, climbing), length, length)] == [
            jumping.tolist(),
            climbing.tolist(),
        ]


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1, 0]), max_size=40), st.data())
def test_any_numbers_come_back_beside_others(some: list[int], data: st.DataObject) -> None:
    times = data.draw(st.integers(1, 20))
    first, second = np.array(some * times, np.int64), np.repeat(np.array(some, np.int64), times)
    found = read(written(first, second), len(first), len(second))
    assert [each.tolist() for each in found] == [first.tolist(), second.tolist()]


def test_what_hardly_changes_takes_next_to_nothing() -> None:
    same, climbing = np.full(100 * BLOCK, 7), 3 * np.arange(100 * BLOCK)
    assert len(written(same)) - SLACK < 2 * 100 + 8
    assert len(written(climbing)) - SLACK < 10 * 100 + 300


def test_a_large_number_makes_only_its_own_block_large() -> None:
    numbers = np.arange(100 * BLOCK) % 2
    before = len(written(numbers))
    numbers[50 * BLOCK + 3] = 2**62
    assert len(written(numbers)) < before + 8 * BLOCK


@pytest.mark.parametrize("rare", [0.0, 0.02, 0.98])
def test_numbers_of_which_few_or_most_are_none_take_a_bit_more_than_the_others_need(rare: float) -> None:
    rng = np.random.default_rng(1)
    numbers = 10**18 + rng.integers(0, 2**20, 100 * BLOCK)
    numbers[rng.random(len(numbers)) < rare] = 0
    content = written(numbers)
    assert read(content, len(numbers))[0].tolist() == numbers.tolist()
    assert 8 * len(content) < 24 * len(numbers)
