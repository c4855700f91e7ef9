"""What stands before partition and offset in the ids of records."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.destinations.dataset.record_origins import find_origins

WRITERS = [{0: "a", 4: "bb", 9: "c"}, {0: ""}, {0: "d", 1: "e"}]
"""Of each partition who wrote it, from which offset on."""


def record_id(partition: int, offset: int) -> str:
    writer = [name for since, name in WRITERS[partition].items() if since <= offset][-1]
    return f"{writer}-{partition}-{offset}" if writer else f"{partition}-{offset}"


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12)), max_size=40))
def test_origins_and_places_are_the_ids_of_records_in_any_order(places: list[tuple[int, int]]) -> None:
    partitions, offsets = (np.array(column, np.int64) for column in (list(zip(*places, strict=True)) or [(), ()]))
    numbers, origins = find_origins(record_id, partitions, offsets)
    found = [f"{origins[number]}{p}-{o}" for number, (p, o) in zip(numbers.tolist(), places, strict=True)]
    assert found == [record_id(*place) for place in places]


def test_the_origin_of_a_long_stretch_is_asked_for_at_its_ends() -> None:
    asked: list[int] = []

    def count(partition: int, offset: int) -> str:
        asked.append(offset)
        return record_id(partition, offset)

    find_origins(count, np.zeros(100_000, np.int64), np.arange(100_000))
    assert len(asked) < 100
