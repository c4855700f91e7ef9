"""Numbers for keys, against a dictionary."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.holding.key_table import KeyTable, Words

keys = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5).map(lambda n: n * 1024)), max_size=12)
"""Few, and such as share buckets."""
steps = st.lists(st.tuples(st.sampled_from(["add", "find", "remove"]), keys), max_size=20)


def halves(pairs: list[tuple[int, int]]) -> tuple[Words, Words]:
    both = np.array(pairs, np.uint64).reshape(-1, 2)
    return np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])


@given(steps)
def test_a_key_keeps_its_number_until_it_is_removed(taken: list[tuple[str, list[tuple[int, int]]]]) -> None:
    table, model = KeyTable(), dict[tuple[int, int], int]()
    for act, pairs in taken:
        if act == "add":
            numbers, new = table.add(*halves(pairs))
            assert new == len(set(pairs) - model.keys())
            for pair, number in zip(pairs, numbers.tolist(), strict=True):
                assert model.setdefault(pair, number) == number
            assert len(set(model.values())) == len(model)
        elif act == "find":
            assert table.find(*halves(pairs)).tolist() == [model.get(pair, -1) for pair in pairs]
        else:
            gone = [model.pop(pair) for pair in dict.fromkeys(pairs) if pair in model]
            table.remove(np.array(gone, np.int64))
        assert len(table) == len(model)
        assert table.size <= max(len(model), table.size)
    assert table.find(*halves(list(model))).tolist() == list(model.values())


def test_numbers_are_given_again_and_the_table_grows_with_what_is_in_it() -> None:
    table, chance = KeyTable(), np.random.default_rng(1)
    for _ in range(50):
        high, low = chance.integers(0, 2**64, (2, 5000), np.uint64)
        numbers, new = table.add(high, low)
        assert new == 5000
        table.remove(numbers)
    assert len(table) == 0
    assert table.size == 5000
