"""What waits by key, against a plain dictionary; and the same again from its deltas."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.holding.held_items import Delta, HeldItems
from penstock.holding.item import ITEM, KEY, Items

batches = st.lists(
    st.tuples(st.lists(st.integers(0, 7), max_size=12), st.lists(st.integers(0, 7), max_size=4, unique=True)),
    max_size=12,
)
"""The keys of what comes, then the keys that are released."""


def items(keys: list[int], start: int) -> Items:
    rows = [(key, key * 1024, start + n, 10 * (start + n), start + n, n % 2, n % 3, 0) for n, key in enumerate(keys)]
    return np.array(rows, ITEM)


def pointers(found: Items) -> list[tuple[int, int]]:
    return list(zip(found["partition"].tolist(), found["offset"].tolist(), strict=True))


@given(batches)
def test_it_holds_and_releases_what_a_dictionary_would(taken: list[tuple[list[int], list[int]]]) -> None:
    held, model = HeldItems(), dict[int, list[tuple[int, int]]]()
    deltas, start = list[Delta](), 0
    for come, go in taken:
        gone = [key for key in go if key in model]
        numbers = held.find(np.array(go, np.uint64), np.array(go, np.uint64) * np.uint64(1024))
        assert sorted(pointers(held.release(numbers)[1])) == sorted(p for key in gone for p in model.pop(key))
        added = items(come, start)
        held.add(added)
        for key, pointer in zip(come, pointers(added), strict=True):
            model.setdefault(key, []).append(pointer)
        deltas.append(Delta(np.array([(key, key * 1024) for key in gone], KEY), added))
        start += len(come)
        replayed = HeldItems()
        for delta in deltas:
            replayed.apply(delta)
        for each in (held, replayed):
            waiting = [pointer for each_key in model.values() for pointer in each_key]
            assert len(each) == len(waiting)
            assert sorted(pointers(each.all_items())) == sorted(waiting)
            lowest = {p: min(o for q, o in waiting if q == p) for p in {p for p, _ in waiting}}
            assert each.lowest_offsets() == lowest
            _, times = each.first_times()
            assert sorted(times.tolist()) == sorted(10 * own[0][1] for own in model.values())
            middle = start // 2
            old = {key for key, own in model.items() if any(offset <= middle for _, offset in own)}
            found = each.find_up_to(middle)
            keys = np.array(sorted(old), np.uint64)
            assert sorted(found.tolist()) == sorted(each.find(keys, keys * np.uint64(1024)).tolist())
            assert len(found) == len(old)


def test_the_items_of_a_key_come_in_the_order_of_the_log() -> None:
    held = HeldItems()
    for start in range(0, 3000, 30):
        held.add(items([n % 5 for n in range(30)], start))
    _, one = held.release(held.find(np.array([3], np.uint64), np.array([3 * 1024], np.uint64)))
    assert one["order"].tolist() == [n for n in range(3000) if n % 30 % 5 == 3]
