"""Rows come back from their packed form as they were, whichever form that is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.holding.item import ITEM
from penstock.holding.packed_rows import FEW_BYTES, KEY_COLUMNS, pack_rows, unpack_rows

MANY = FEW_BYTES // ITEM.itemsize + 1
extremes = st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63)])


def items(numbers: list[int], rows: int) -> np.ndarray:
    """So many rows whose columns have these numbers in turn, cut to what a column holds."""
    made = np.zeros(rows, ITEM)
    for place, name in enumerate(ITEM.names or ()):
        values = np.array([numbers[(place + row) % len(numbers)] for row in range(rows)], np.int64)
        made[name] = values.astype(ITEM[name])
    return made


@given(st.lists(extremes | st.integers(-(2**63), 2**63 - 1), min_size=1), st.sampled_from([0, 1, MANY - 1, MANY, 500]))
def test_rows_come_back_as_they_were(numbers: list[int], rows: int) -> None:
    made = items(numbers, rows)
    assert np.array_equal(unpack_rows([pack_rows(made), b"", pack_rows(made[:1])], ITEM), np.append(made, made[:1]))


@pytest.mark.parametrize("rows", [1, MANY])
def test_columns_that_are_left_out_are_zero(rows: int) -> None:
    made = items([7, 8, 9], rows)
    found = unpack_rows([pack_rows(made, KEY_COLUMNS)], ITEM)
    assert not found["high"].any()
    assert not found["low"].any()
    assert np.array_equal(found["offset"], made["offset"])


def test_neighbours_in_the_log_take_a_few_bytes_each() -> None:
    made = np.zeros(10_000, ITEM)
    made["offset"] = made["order"] = made["time"] = np.arange(10_000)
    assert len(pack_rows(made)) < 2 * len(made)
