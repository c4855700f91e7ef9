"""The typecast tree."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.flatten.inner_types import InnerType, promote

TYPES = st.sampled_from(InnerType)
B, I, F, S, T = InnerType.BOOL, InnerType.INT64, InnerType.FLOAT64, InnerType.STRING, InnerType.TIMESTAMP  # noqa: E741


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [(B, I, I), (B, F, F), (I, F, F), (F, T, S), (B, T, S), (I, T, S), (T, S, S), (B, S, S), (I, S, S), (F, S, S)],
)
def test_two_types_meet_at_their_lowest_common_ancestor(one: InnerType, other: InnerType, common: InnerType) -> None:
    assert promote(one, other) is common


@given(TYPES, TYPES, TYPES)
def test_the_order_of_batches_does_not_matter(a: InnerType, b: InnerType, c: InnerType) -> None:
    assert promote(a, a) is a
    assert promote(a, b) is promote(b, a)
    assert promote(promote(a, b), c) is promote(a, promote(b, c))


@given(st.lists(TYPES, min_size=1))
def test_many_types_meet_as_they_do_pair_by_pair(types: list[InnerType]) -> None:
    common = reduce(promote, types)
    assert all(promote(one, common) is common for one in types)
