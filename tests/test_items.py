"""The numbers of items: each its own, whatever becomes of its neighbours."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.items import ItemKeys, is_part_of, number_items
from penstock.record import Header, Record, entries, placed
from penstock.steps.chain import Chain, ChainOutcome, Link
from penstock.steps.set.config import SetConfig
from penstock.steps.set.step import Set
from penstock.steps.skip.config import SkipConfig
from penstock.steps.skip.step import Skip
from penstock.steps.split.config import SplitConfig
from penstock.steps.split.step import Split
from tests.steps.split.test_split import SPLIT

INNER = Link("split#2", Split(SplitConfig.model_validate("a.b")))
SKIP = Link("skip", Skip(SkipConfig.model_validate("a.b = 0")))
SET = Link("set", Set(SetConfig.model_validate({"a.b.x": "1"})))
"""Fails where ``a.b`` is a number."""

TREES = st.lists(st.lists(st.integers(0, 2) | st.just({}), max_size=4).map(lambda inner: {"b": inner}), max_size=4)
"""What is in ``a``: objects whose ``b`` is an array of numbers and objects."""


def of_trees(trees: list[Any], headers: dict[str, str] | None = None) -> pa.RecordBatch:
    return placed(entries(Record(json.dumps({"a": tree}).encode(), headers=headers or {}) for tree in trees), 3, 100)


def all_items(outcome: ChainOutcome) -> dict[tuple[int, int], str]:
    """What became of each item: its data, or that it failed."""
    kept = outcome.kept.to_pylist()
    found = [((row["offset"], row["item"]), row["data"].decode()) for row in kept]
    found += [((row["offset"], row["item"]), "failed") for some in outcome.failures for row in some.to_pylist()]
    assert len(dict(found)) == len(found), "two items have one number"
    return dict(found)


@given(st.lists(TREES, min_size=1, max_size=4))
def test_an_item_has_the_same_number_in_any_company(trees: list[Any]) -> None:
    links = [SPLIT, INNER, SKIP, SET]
    together = all_items(Chain(links).run(of_trees(trees)))
    alone: dict[tuple[int, int], str] = {}
    for place, tree in enumerate(trees):
        found = all_items(Chain(links).run(of_trees([tree])))
        alone |= {(offset + place, item): data for (offset, item), data in found.items()}
    assert together == alone
    # A step that takes some away changes no number.
    without_skip = all_items(Chain([SPLIT, INNER, SET]).run(of_trees(trees)))
    assert without_skip.items() >= together.items()


@given(TREES)
def test_every_item_can_be_replayed_alone(tree: list[Any]) -> None:
    chain = Chain([SPLIT, INNER, SKIP, SET])
    for (_, item), became in all_items(chain.run(of_trees([tree]))).items():
        outcome = chain.run(of_trees([tree], {Header.REPLAY_ITEM: str(item)} if item else {}))
        again = all_items(outcome)
        if item:
            assert again == {(100, item): became}
        given_rows = 1 + sum(outcome.added.values())
        assert given_rows == len(again) + sum(outcome.skipped.values())


def test_what_fails_on_the_way_to_an_item_fails_as_that_item() -> None:
    torn = placed(entries([Record(b"{", headers={Header.REPLAY_ITEM: "2"})]), 3, 100)
    assert all_items(Chain([SPLIT]).run(torn)) == {(100, 2): "failed"}


def rows(numbers: Callable[[int], int], count: int) -> pa.RecordBatch:
    made = of_trees([[]] * count)
    at = made.schema.get_field_index("item")
    return made.set_column(at, made.schema.field(at), pa.array([numbers(n) for n in range(count)], pa.int64()))


def test_a_third_level_shares_the_number_of_the_second() -> None:
    deep = (5 << 31) | 7
    row = rows(lambda _: deep, 1)
    assert number_items(pa.concat_batches([row, row])).column("item").to_pylist() == [deep, deep]


def test_parts_are_known_by_their_numbers() -> None:
    items = np.array([0, 1, (1 << 31) | 2, (2 << 31) | 2], np.int64)
    assert is_part_of(items, np.array([1, 1, 1, 1])).tolist() == [False, True, True, False]
    keys, failed = ItemKeys(np.full(4, 9), items), ItemKeys(np.array([9]), np.array([1]))
    assert keys.within(failed).tolist() == [False, True, True, False]
    assert keys.made_of(failed).tolist() == [False, False, True, False]
    assert keys.within(ItemKeys(np.array([8]), np.array([0]))).tolist() == [False] * 4
