"""Folding rows by key is merging them one after the other."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.destinations.sql.load.fold_by_key import Folding, Numbers, SharedKeys
from penstock.destinations.sql.load.merge_rows import AFTER, TURN, UPTO
from penstock.flatten.unmapped.unmapped_column import UNMAPPED


def folded(batches: list[pa.RecordBatch], key: list[str], version: str | None) -> list[pa.RecordBatch]:
    versions = [batch.column(version) for batch in batches] if version else None
    folding = Folding(SharedKeys([[batch.column(name) for name in key] for batch in batches], versions), version)
    return [*(folding.add_batch(place, batch) for place, batch in enumerate(batches)), *folding.folded_rows()]


FIELD = st.sampled_from(["x", "y", "z"])
VALUE = st.none() | st.integers(0, 9) | FIELD
"""Text fits no column here: it is kept aside."""
ROW = st.fixed_dictionaries(
    {
        "id": st.integers(0, 4),
        "region": st.sampled_from(["eu", "us"]),
        "v": st.none() | st.integers(0, 3),
        "a": VALUE,
        "b": VALUE,
    }
)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("region", pa.string()),
        ("v", pa.int64()),
        ("a", pa.int64()),
        ("b", pa.int64()),
        (UNMAPPED, pa.string()),
    ]
)
ROWS = st.lists(ROW, max_size=8)
Row = dict[str, Any]


def as_staged(row: Row) -> Row:
    aside = {name: value for name, value in row.items() if name in "ab" and isinstance(value, str)}
    return {**row, **dict.fromkeys(aside), UNMAPPED: json.dumps(aside) if aside else None}


class Merged:
    """A table that rows are merged into one after the other, each by the plain rule."""

    def __init__(self, key: list[str], version: str | None) -> None:
        self.key, self.version = key, version
        self.rows: dict[tuple[Any, ...], Row] = {}

    def merge(self, row: Row) -> None:
        there = self.rows.setdefault(tuple(row[name] for name in self.key), {})
        known = there.get(self.version) if self.version else None
        if known is not None and (row["v"] is None or row["v"] < known):
            return
        aside = json.loads(there.get(UNMAPPED) or "{}")
        came = json.loads(row[UNMAPPED] or "{}")
        for name, value in row.items():
            if name in came:
                there[name] = None
            elif value is not None and name != UNMAPPED:
                there[name] = value
                aside.pop(name, None)
        there[UNMAPPED] = json.dumps({**aside, **came}) if aside or came else None

    def due(self, row: Row) -> bool:
        """Whether it is a staged row's turn, as an engine decides it."""
        if row.get(TURN) is None:
            return True
        there = self.rows.get(tuple(row[name] for name in self.key), {}).get("v")
        if there is None:
            return bool(row[TURN] == 0)
        return row[UPTO] is not None and there <= row[UPTO] and (row[AFTER] is None or there > row[AFTER])

    def found(self) -> set[tuple[Any, ...]]:
        return {tuple(self._plain(name, row.get(name)) for name in SCHEMA.names) for row in self.rows.values()}

    @staticmethod
    def _plain(name: str, value: object) -> object:
        return frozenset(json.loads(str(value)).items()) if name == UNMAPPED and value is not None else value


@given(ROWS, st.lists(ROWS, max_size=4), st.sampled_from([["id"], ["id", "region"]]), st.sampled_from([None, "v"]))
def test_folded_rows_do_what_merging_them_in_order_does(
    before: list[Row], batches: list[list[Row]], key: list[str], version: str | None
) -> None:
    at_once, in_order = Merged(key, version), Merged(key, version)
    for row in map(as_staged, before):
        at_once.merge(row)
        in_order.merge(row)
    for rows in batches:
        for row in map(as_staged, rows):
            in_order.merge(row)
    staged = [pa.RecordBatch.from_pylist(list(map(as_staged, rows)), schema=SCHEMA) for rows in batches]
    came = [row for batch in folded(staged, key, version) for row in batch.to_pylist()]
    due = [row for row in came if at_once.due(row)]
    places = [tuple(row[name] for name in key) for row in due]
    assert len(set(places)) == len(places), "a key comes twice"
    for row in due:
        at_once.merge(row)
    assert at_once.found() == in_order.found()


def test_files_with_other_columns_meet_in_one_row() -> None:
    one = pa.RecordBatch.from_pylist([{"id": 1, "a": 1}, {"id": 2, "a": 2}])
    other = pa.RecordBatch.from_pylist([{"id": 1, "b": "x"}])
    found = [row for batch in folded([one, other], ["id"], None) for row in batch.to_pylist()]
    assert found == [{"id": 2, "a": 2}, {"id": 1, "a": 1, "b": "x"}]


def test_a_row_that_is_not_there_any_more_changes_nothing() -> None:
    batch = pa.RecordBatch.from_pylist([{"id": 1, "a": 1}, {"id": None, "a": 2}, {"id": 1, "a": 3}, {"id": 4, "a": 4}])
    folding = Folding(SharedKeys([[batch.column("id")]]), None)
    kept = np.array([True, False, False, True])
    left = folding.add_batch(0, batch.filter(pa.array(kept)), kept)
    assert left.to_pylist() == [{"id": 4, "a": 4}]
    assert [row for rows in folding.folded_rows() for row in rows.to_pylist()] == [{"id": 1, "a": 1}]


def test_rows_with_keys_of_their_own_are_passed_on_as_they_are() -> None:
    batch = pa.RecordBatch.from_pylist([{"id": 1}, {"id": 2}])
    (same,) = folded([batch], ["id"], None)
    assert same is batch


class Told:
    """An order in which records have the ranks that they are told."""

    def __init__(self, ranks: dict[tuple[int, int], int]) -> None:
        self._ranks = ranks

    def ranks(self, partitions: Numbers, offsets: Numbers) -> Numbers:
        pairs = zip(partitions.tolist(), offsets.tolist(), strict=True)
        return np.array([self._ranks[pair] for pair in pairs], np.int64)


@given(st.lists(st.tuples(ROW, st.integers(0, 2)), max_size=10), st.sampled_from([None, "v"]), st.randoms())
def test_rows_of_several_partitions_are_merged_in_the_order_of_the_log(
    history: list[tuple[Row, int]], version: str | None, random: Random
) -> None:
    """However they were staged: a batch per partition, or shuffled by a step."""
    seen: Counter[int] = Counter()
    placed = []
    for row, partition in history:
        placed.append((row, (partition, seen[partition])))
        seen[partition] += 1
    order = Told({place: rank for rank, (_, place) in enumerate(placed)})
    if random.random() < 0.5:
        staged = [[each for each in placed if each[1][0] == partition] for partition in sorted(seen)]
    else:
        random.shuffle(placed)
        staged = [placed[:4], placed[4:]] if len(placed) > 4 else [placed] if placed else []
    batches = [pa.RecordBatch.from_pylist([as_staged(row) for row, _ in rows], schema=SCHEMA) for rows in staged]
    places = [
        (pa.array([p for _, (p, _) in rows], pa.int64()), pa.array([offset for _, (_, offset) in rows], pa.int64()))
        for rows in staged
    ]
    versions = [batch.column("v") for batch in batches] if version else None
    keys = SharedKeys([[batch.column("id")] for batch in batches], versions, places, order)
    folding = Folding(keys, version)
    found = [*(folding.add_batch(place, batch) for place, batch in enumerate(batches)), *folding.folded_rows()]
    together = Merged(["id"], version)
    for batch in found:
        for row in batch.to_pylist():
            if together.due(row):
                together.merge(row)
    one_by_one = Merged(["id"], version)
    for row, _ in history:
        one_by_one.merge(as_staged(row))
    assert together.found() == one_by_one.found()
