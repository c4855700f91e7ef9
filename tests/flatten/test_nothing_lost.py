"""Every leaf of every document can be found again, and no document depends on another."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.flatten import Flattened, flatten, flatten_pieces
from penstock.flatten.column_naming import column_name
from penstock.json.paths import format_path
from tests.flatten import reference
from tests.json import reference as slow_json
from tests.json.spelling import DOCUMENTS, damaged

BATCHES = st.lists(DOCUMENTS, max_size=6)
ANY_BATCHES = st.lists(st.one_of(DOCUMENTS, damaged(), st.none()), max_size=8)
CASTS = {"/a": "bigint", "/b": "boolean", "/A": "numeric(12,2)", "/é": "timestamp", "/a_b": "varchar(3)", "/~1": "uuid"}


def leaves(document: bytes | None) -> dict[tuple[str, ...], str]:
    text = slow_json.reads(document or b"")
    return dict(slow_json.leaves(text)) if text else {}


def replaced(document: bytes | None) -> list[str]:
    """Under which keys what a document says more than once is kept, but for the last time."""
    text = slow_json.reads(document or b"")
    paths = [path for path, _, counts in slow_json.every_leaf(text) if not counts] if text else []
    return [f"{format_path(path)}#{paths[: place + 1].count(path)}" for place, path in enumerate(paths)]


def rows(found: Flattened) -> list[dict[str, object]]:
    """What each row has, without its nulls."""
    return [{name: value for name, value in row.items() if value is not None} for row in found.table.to_pylist()]


def members(row: dict[str, object]) -> list[tuple[str, object]]:
    text = row.get("_unmapped", "{}")
    assert isinstance(text, str)
    found: list[tuple[str, object]] = json.loads(text, object_pairs_hook=list)
    return found


@given(BATCHES)
def test_the_leaves_of_an_event_are_found_by_the_paths_of_the_columns(documents: list[bytes]) -> None:
    found = flatten(pa.array(documents, pa.binary()))
    for index, row in zip(found.rows.to_pylist(), rows(found), strict=True):
        missing = leaves(documents[index])
        for column in found.columns:
            filling = [path for path in missing if format_path(path) in column.paths]
            if filling:
                assert row[column.name] == reference.cell(missing.pop(filling[0]), column.type)
            else:
                assert column.name == "_unmapped" or column.name not in row
        again = replaced(documents[index])
        assert sorted(key for key, _ in members(row)) == sorted([*map(format_path, missing), *again])


@given(ANY_BATCHES)
def test_with_casts_every_leaf_is_in_its_column_or_unmapped(documents: list[bytes | None]) -> None:
    found = flatten(pa.array(documents, pa.binary()), CASTS, max_name=20)
    found.table.validate(full=True)
    for index, row in zip(found.rows.to_pylist(), rows(found), strict=True):
        expected, again = leaves(documents[index]), replaced(documents[index])
        kept = [(key, value) for key, value in members(row) if key not in again]
        assert len(kept) + len(again) == len(members(row))
        assert len(row.keys() - {"_unmapped"}) + len(kept) == len(expected)
        names = {column_name(path, 20) for path in expected}
        assert row.keys() - {"_unmapped"} <= names
        assert {key for key, _ in kept} <= names | {format_path(path) for path in expected}
    assert set(found.rows.to_pylist()) == {
        index for index, document in enumerate(documents) if leaves(document) or replaced(document)
    }


@given(BATCHES)
def test_what_a_row_has_does_not_depend_on_its_neighbours(documents: list[bytes]) -> None:
    together = flatten(pa.array(documents, pa.binary()))
    for index, row in zip(together.rows.to_pylist(), rows(together), strict=True):
        (alone,) = rows(flatten(pa.array([documents[index]], pa.binary())))
        assert row.keys() == alone.keys()
        assert row.get("_unmapped") == alone.get("_unmapped")


@given(ANY_BATCHES, st.integers(1, 40))
def test_pieces_are_small_and_together_the_whole(documents: list[bytes | None], cell_limit: int) -> None:
    data = pa.array(documents, pa.binary())
    whole = flatten(data)
    pieces = list(flatten_pieces(data, cell_limit=cell_limit))
    assert pieces[0][0] == 0
    ends = [*(first for first, _ in pieces[1:]), len(documents)]
    for (first, piece), end in zip(pieces, ends, strict=True):
        assert end - first <= 1 or len({c.name for c in piece.columns} - {"_unmapped"}) * (end - first) <= cell_limit
        assert len(piece.rows) + len(piece.empty) + len(piece.failures) == end - first
        assert piece.table.equals(flatten(data[first:end]).table)
        assert piece.columns == flatten(data[first:end]).columns
    assert [first + row for first, piece in pieces for row in piece.rows.to_pylist()] == whole.rows.to_pylist()
    assert [first + row for first, piece in pieces for row in piece.empty.to_pylist()] == whole.empty.to_pylist()
    assert [
        (first + failure.record, failure.message, failure.position)
        for first, piece in pieces
        for failure in piece.failures
    ] == [(failure.record, failure.message, failure.position) for failure in whole.failures]
    assert sum(piece.replaced for _, piece in pieces) == whole.replaced
    assert sum(c.values for _, piece in pieces for c in piece.collisions) == sum(c.values for c in whole.collisions)


def test_a_usual_batch_is_one_piece() -> None:
    ((first, piece),) = flatten_pieces(pa.array(['{"a":1}', '{"b":2}']))
    assert first == 0
    assert piece.table.to_pydict() == {"a": [1, None], "b": [None, 2]}


def test_events_that_all_have_keys_of_their_own_do_not_make_one_huge_table() -> None:
    documents = pa.array([json.dumps({f"k{event}_{n}": n for n in range(20)}) for event in range(600)])
    pieces = [piece for _, piece in flatten_pieces(documents, cell_limit=100_000)]
    assert sum(piece.table.num_rows for piece in pieces) == 600
    assert max(piece.table.num_rows * piece.table.num_columns for piece in pieces) <= 100_000
    assert len(pieces) == 16


@pytest.mark.parametrize(
    ("string", "text"),
    [
        ('"\\ud800"', "\\ud800"),
        ('"\\uDC00x"', "\\uDC00x"),
        ('"\\ud83d\\ud83d\\ude00"', "\\ud83d😀"),
        ('"\\u0000"', "\0"),
        ('"\\ud800\\u0000"', "\\ud800\0"),
    ],
)
def test_odd_characters_stay_in_valid_text(string: str, text: str) -> None:
    found = flatten(pa.array([f'{{"a":{string},"b":[{string}],"A":{string},{string}:1}}']))
    found.table.validate(full=True)
    (row,) = found.table.to_pylist()
    assert row["a"] == text
    assert json.loads(row["b"]) == [json.loads(string)]
    assert json.loads(row["_unmapped"]) == {"/A": json.loads(string)}
    assert found.columns[2].paths == (format_path((text,)),)
