"""Folding rows by key is merging them one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.destinations.sql.folding import Folding


def folded(batches: list[pa.RecordBatch], key: list[str], version: str | None) -> list[pa.RecordBatch]:
    folding = Folding([[batch.column(name) for name in key] for batch in batches], version)
    return [*(folding.alone(place, batch) for place, batch in enumerate(batches)), *folding.together()]


ROW = st.fixed_dictionaries(
    {
        "id": st.integers(0, 4),
        "region": st.sampled_from(["eu", "us"]),
        "v": st.none() | st.integers(0, 3),
        "a": st.none() | st.integers(0, 9),
        "b": st.none() | st.text(max_size=2),
    }
)
SCHEMA = pa.schema(
    [("id", pa.int64()), ("region", pa.string()), ("v", pa.int64()), ("a", pa.int64()), ("b", pa.string())]
)
BATCHES = st.lists(st.lists(ROW, max_size=8), max_size=4)


def merged_one_by_one(rows: list[dict[str, Any]], key: list[str], version: str | None) -> list[dict[str, Any]]:
    table: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        there = table.setdefault(tuple(row[name] for name in key), dict.fromkeys(row))
        if (
            version is not None
            and there[version] is not None
            and (row[version] is None or row[version] < there[version])
        ):
            continue
        there.update({name: value for name, value in row.items() if value is not None})
    return list(table.values())


def as_set(rows: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    return {tuple(row.get(name) for name in SCHEMA.names) for row in rows}


@given(BATCHES, st.sampled_from([["id"], ["id", "region"]]), st.sampled_from([None, "v"]))
def test_folded_rows_are_what_merging_them_in_order_gives(
    batches: list[list[dict[str, Any]]], key: list[str], version: str | None
) -> None:
    staged = [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in batches]
    found = [row for batch in folded(staged, key, version) for row in batch.to_pylist()]
    expected = merged_one_by_one([row for rows in batches for row in rows], key, version)
    assert as_set(found) == as_set(expected)
    assert len(found) == len(expected)


def test_files_with_other_columns_meet_in_one_row() -> None:
    one = pa.RecordBatch.from_pylist([{"id": 1, "a": 1}, {"id": 2, "a": 2}])
    other = pa.RecordBatch.from_pylist([{"id": 1, "b": "x"}])
    found = [row for batch in folded([one, other], ["id"], None) for row in batch.to_pylist()]
    assert found == [{"id": 2, "a": 2}, {"id": 1, "a": 1, "b": "x"}]


def test_a_row_that_is_not_there_any_more_changes_nothing() -> None:
    batch = pa.RecordBatch.from_pylist([{"id": 1, "a": 1}, {"id": None, "a": 2}, {"id": 1, "a": 3}, {"id": 4, "a": 4}])
    folding = Folding([[batch.column("id")]], None)
    kept = np.array([True, False, False, True])
    left = folding.alone(0, batch.filter(pa.array(kept)), kept)
    assert left.to_pylist() == [{"id": 4, "a": 4}]
    assert [row for rows in folding.together() for row in rows.to_pylist()] == [{"id": 1, "a": 1}]


def test_rows_with_keys_of_their_own_are_passed_on_as_they_are() -> None:
    batch = pa.RecordBatch.from_pylist([{"id": 1}, {"id": 2}])
    (same,) = folded([batch], ["id"], None)
    assert same is batch
