"""Folding changes is applying them one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.destinations.sql.mirror.fold_changes import NONE, Change, count, fold, without_row

KEYS = 5
Values = dict[str, int]


@dataclass(frozen=True)
class Step:
    change: Change
    key: int = NONE
    old: int = NONE
    values: Values = field(default_factory=dict)


key = st.integers(0, KEYS - 1)
values = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9))
STEP = st.one_of(
    st.builds(Step, st.just(Change.INSERT), key, values=values),
    st.builds(Step, st.just(Change.UPDATE), key, values=values),
    st.builds(Step, st.just(Change.UPDATE), key, key, values),
    st.builds(Step, st.just(Change.DELETE), key),
    st.builds(Step, st.just(Change.TRUNCATE)),
    st.builds(Step, st.just(Change.NOTHING), key, values=values),
)
TABLE = st.dictionaries(key, st.fixed_dictionaries({"a": st.integers(), "z": st.integers()}))


def one_by_one(steps: Sequence[Step], table: dict[int, Values]) -> dict[int, Values]:
    rows = dict(table)
    for step in steps:
        if step.change in (Change.INSERT, Change.UPDATE):
            source = step.key if step.old == NONE else step.old
            rows[step.key] = {**rows.pop(source, {}), **step.values}
        elif step.change is Change.DELETE:
            rows.pop(step.key, None)
        elif step.change is Change.TRUNCATE:
            rows.clear()
    return rows


def at_once(steps: Sequence[Step], table: dict[int, Values]) -> dict[int, Values]:
    folded = fold(
        np.array([step.change for step in steps], np.int8),
        np.array([step.key for step in steps], np.int64),
        np.array([step.old for step in steps], np.int64),
        KEYS,
    )
    come: list[Values] = [{} if origin == NONE else dict(table.get(origin, {})) for origin in folded.origin.tolist()]
    for step, row in zip(steps, folded.row.tolist(), strict=True):
        if row != NONE:
            come[row].update(step.values)
    left = {} if folded.truncated else {k: v for k, v in table.items() if k not in folded.gone.tolist()}
    assert not set(folded.place[folded.moved].tolist()) & left.keys(), "a row would meet another one"
    return left | dict(zip(folded.place.tolist(), come, strict=True))


@given(st.lists(STEP, max_size=12), TABLE)
def test_changes_at_once_are_changes_one_by_one(steps: list[Step], table: dict[int, Values]) -> None:
    assert at_once(steps, table) == one_by_one(steps, table)


@given(st.lists(st.lists(STEP, max_size=5), max_size=5), TABLE)
def test_it_does_not_matter_where_changes_are_cut(batches: list[list[Step]], table: dict[int, Values]) -> None:
    rows = table
    for steps in batches:
        rows = at_once(steps, rows)
    assert rows == at_once([step for steps in batches for step in steps], table)


ROW = st.integers(0, 3)
WHOLE_ROW_STEP = st.one_of(
    st.builds(Step, st.just(Change.INSERT), ROW),
    st.builds(Step, st.just(Change.UPDATE), ROW, ROW),
    st.builds(Step, st.just(Change.DELETE), ROW),
    st.builds(Step, st.just(Change.TRUNCATE), ROW),
    st.builds(Step, st.just(Change.NOTHING), ROW),
)


@given(st.lists(WHOLE_ROW_STEP, max_size=12), st.lists(ROW, max_size=5))
def test_rows_without_a_key_are_counted_as_if_one_by_one(steps: list[Step], table: list[int]) -> None:
    expected = Counter(table)
    for step in steps:
        if step.change is Change.TRUNCATE:
            expected.clear()
        if step.change is Change.UPDATE:
            expected[step.old] = max(0, expected[step.old] - 1)
        if step.change is Change.DELETE:
            expected[step.key] = max(0, expected[step.key] - 1)
        if step.change in (Change.INSERT, Change.UPDATE):
            expected[step.key] += 1
    counted = count(
        np.array([step.change for step in steps], np.int8),
        np.array([step.key for step in steps], np.int64),
        np.array([step.old for step in steps], np.int64),
    )
    found = Counter() if counted.truncated else Counter(table)
    for row, times in zip(counted.goes.tolist(), counted.times.tolist(), strict=True):
        found[row] = max(0, found[row] - times)
    found.update(steps[place].key for place in counted.comes.tolist())
    assert +found == +expected


@given(st.lists(WHOLE_ROW_STEP, max_size=12))
def test_a_row_that_comes_and_goes_is_never_touched(steps: list[Step]) -> None:
    """Of a table without a key nothing is written that does not last."""
    inserted = [Step(Change.INSERT, 7), *steps, Step(Change.DELETE, 7)]
    counted = count(
        np.array([step.change for step in inserted], np.int8),
        np.array([step.key for step in inserted], np.int64),
        np.array([step.old for step in inserted], np.int64),
    )
    assert counted.truncated or 7 not in counted.goes.tolist(), "after a truncate the delete finds none"
    assert 7 not in [inserted[place].key for place in counted.comes.tolist()]


@given(st.lists(WHOLE_ROW_STEP, max_size=12), st.lists(ROW, max_size=5))
def test_changes_that_find_no_row_are_those_that_find_none_one_by_one(steps: list[Step], table: list[int]) -> None:
    """Failed and left out, round after round, until all others find theirs."""
    expected, rows = [], Counter(table)
    for place, step in enumerate(steps):
        if step.change is Change.TRUNCATE:
            rows.clear()
            # What failed before it is of no account: the fold begins with the last truncate.
            expected.clear()
        gone = {Change.UPDATE: step.old, Change.DELETE: step.key}.get(step.change)
        if gone is not None and not rows[gone]:
            expected.append(place)
            continue
        if gone is not None:
            rows[gone] -= 1
        if step.change in (Change.INSERT, Change.UPDATE):
            rows[step.key] += 1
    change = np.array([step.change for step in steps], np.int8)
    keys, old = (np.array(each, np.int64) for each in ([s.key for s in steps], [s.old for s in steps]))
    found: list[int] = []
    while True:
        counted = count(change, keys, old)
        there = Counter() if counted.truncated else Counter(table)
        going = dict(zip(counted.goes.tolist(), counted.times.tolist(), strict=True))
        lacking = {row: times - there[row] for row, times in going.items() if times > there[row]}
        if not lacking:
            break
        failed = without_row(change, keys, old, lacking)
        assert failed
        found += failed
        change[failed] = Change.NOTHING
    assert sorted(found) == expected
