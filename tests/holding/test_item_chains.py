"""Chains of items, against a plain dictionary."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.holding.item import ITEM, Items
from penstock.holding.item_chains import GONE, ItemChains, chain_items, drop_items, take_first, take_items

batches = st.lists(
    st.tuples(st.lists(st.integers(0, 5), max_size=10), st.lists(st.integers(0, 5), max_size=3, unique=True)),
    max_size=12,
)
"""The numbers of what comes, then the numbers whose chains are taken."""


def items(count: int, start: int) -> Items:
    return np.array([(0, 0, start + n, 0, start + n, n % 2, 0, 0) for n in range(count)], ITEM)


@given(batches, st.booleans())
def test_chains_are_taken_as_they_came(taken: list[tuple[list[int], list[int]]], compacts: bool) -> None:
    chains, model, start = ItemChains(), dict[int, list[int]](), 0
    chains.make_numbers(6)
    for come, go in taken:
        chains.add(np.array(come, np.int64), items(len(come), start))
        for n, number in enumerate(come):
            model.setdefault(number, []).append(start + n)
        start += len(come)
        _, found = chains.release(np.array(go, np.int64))
        assert found["offset"].tolist() == [offset for number in go for offset in model.pop(number, [])]
        if compacts and chains.sparse:
            chains.compact()
        waiting = sorted(offset for own in model.values() for offset in own)
        assert len(chains) == len(waiting)
        assert chains.all_items()["offset"].tolist() == waiting
        assert [int(offset) for part in chains.parts(3) for offset in part["offset"]] == waiting
        lowest = {int(part): int(chains.all_items()["offset"][chains.all_items()["partition"] == part][0])
                  for part in np.unique(chains.all_items()["partition"])}  # fmt: skip
        assert chains.lowest_offsets() == lowest
        numbers, first = chains.first_items()
        assert dict(zip(numbers.tolist(), first["offset"].tolist(), strict=True)) == {
            n: own[0] for n, own in model.items()
        }


def test_appended_items_wait_only_if_they_are_chained() -> None:
    chains = ItemChains()
    chains.make_numbers(2)
    place = chains.append(items(4, 10))
    assert (len(chains), chains.lowest_offsets()) == (0, {})
    chain_items(chains.chains, 1, np.array([1, 3]), place)
    assert chains.all_items()["offset"].tolist() == [11, 13]
    assert take_first(chains.chains, 1) == place + 1
    assert drop_items(chains.chains, 1, place + 4) == (1, 0)
    assert len(chains) == 0
    assert (chains.chains.following[:4] == GONE).all()


def test_places_are_found_behind_those_that_there_are() -> None:
    chains = ItemChains()
    chains.add(np.array([0, 0, 0]), items(3, 0))
    found = np.array([7, 8, 0, 0, 0])
    assert take_items(chains.chains, 0, found, 2) == 5
    assert found.tolist() == [7, 8, 0, 1, 2]


def test_room_that_is_no_longer_needed_is_given_back() -> None:
    chains = ItemChains()
    chains.add(np.zeros(2_000_000, np.int64), np.zeros(2_000_000, ITEM))
    chains.release(np.array([0]))
    chains.compact()
    assert len(chains.items) == 0
