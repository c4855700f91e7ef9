"""Rows of several bundles become those of one: what is left is what writing them one after the other would leave."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
from hypothesis import given

from penstock.conflation.fold_rows import Said, fold_rows

words = st.lists(st.tuples(st.sampled_from(Said), st.lists(st.integers(0, 4), max_size=4)), max_size=6)


@given(words, st.sets(st.integers(0, 6)))
def test_it_ends_like_one_after_the_other(said: list[tuple[Said, list[int]]], there: set[int]) -> None:
    expected = dict.fromkeys(there, -1)
    keys: list[int] = []
    ops: list[int] = []
    ranks: list[int] = []
    for rank, (word, objects) in enumerate(said):
        if word is Said.LIST:
            expected = {key: row for key, row in expected.items() if key in objects}
        for key in objects:
            if word is Said.PUT:
                expected[key] = len(keys)
            elif word is Said.DELETE:
                expected.pop(key, None)
            keys.append(key)
            ops.append(word)
            ranks.append(rank)
    lists = [rank for rank, (word, _) in enumerate(said) if word is Said.LIST]
    found = fold_rows([pa.array(keys, pa.int64())], np.array(ops, np.int8), np.array(ranks, np.int64), lists)
    table = dict.fromkeys(there, -1)
    by_key = {keys[row]: (row, Said(word)) for row, word in zip(found.rows, found.said, strict=True)}
    assert len(by_key) == len(found.rows), "an object has one row"
    if found.prunes:
        stays = {key for key, (_, word) in by_key.items() if word is not Said.DELETE}
        table = {key: row for key, row in table.items() if key in stays}
    for key, (row, word) in by_key.items():
        if word is Said.PUT:
            table[key] = row
        elif word is Said.DELETE:
            table.pop(key, None)
    assert table == expected


def test_objects_are_told_apart_by_all_columns_of_the_key() -> None:
    keys = [pa.array(["a", "a", "b", "a"]), pa.array([1, 2, 1, 1])]
    said = np.zeros(4, np.int8)
    assert fold_rows(keys, said, np.zeros(4, np.int64), []).rows.tolist() == [1, 2, 3]
