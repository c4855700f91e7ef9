"""Adding members to the text of ``_unmapped``."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.flatten.unmapped.leftovers import with_members


def test_members_follow_what_was_there() -> None:
    unmapped = pa.array([None, '{"/a":1}', None, '{"k":[1]}', "{}", ' { "s" : 1 } '])
    masks = [[True, True, False, False, True, True], [True, False, False, False, False, False]]
    found = with_members(
        unmapped,
        6,
        [("x", pa.array(masks[0]), ["1", '"é"', "true", "2"]), ('q"', pa.array(masks[1]), pa.array(["1.50"]))],
    )
    assert found.to_pylist() == [
        '{"x":1,"q\\"":1.50}',
        '{"/a":1,"x":"é"}',
        None,
        '{"k":[1]}',
        '{"x":true}',
        '{"s" : 1,"x":2}',
    ]


@pytest.mark.parametrize("unmapped", [None, pa.nulls(2, pa.string()), pa.chunked_array([["{}"], [None]], pa.string())])
def test_there_may_be_nothing_to_begin_with(unmapped: pa.Array | None) -> None:
    found = with_members(unmapped, 2, [("x", pa.array([False, True]), ["1"])])
    assert found.to_pylist()[1] == '{"x":1}'


@pytest.mark.parametrize("unmapped", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("values", [pa.string(), pa.large_string()])
def test_text_may_be_large_and_masks_may_be_numpy(unmapped: pa.DataType, values: pa.DataType) -> None:
    found = with_members(
        pa.array(['{"a":1}', None], unmapped), 2, [("x", np.array([True, False]), pa.array(["1"], values))]
    )
    assert found.type == unmapped
    assert found.to_pylist() == ['{"a":1,"x":1}', None]


def test_nothing_to_add_changes_nothing() -> None:
    unmapped = pa.array(['{"a":1}', None])
    assert with_members(unmapped, 2, []) is unmapped
    assert with_members(unmapped, 2, [("x", pa.array([False, False]), [])]) is unmapped
    assert with_members(None, 3, []).to_pylist() == [None] * 3


KEYS = st.text(max_size=4)
OBJECTS = st.none() | st.dictionaries(KEYS.map("/".__add__), st.integers(), max_size=2)


@given(st.data(), st.lists(OBJECTS, min_size=1, max_size=6), st.lists(KEYS.map("k".__add__), max_size=3, unique=True))
def test_every_row_keeps_its_members_and_gets_its_own(
    data: st.DataObject, rows: list[dict[str, int] | None], keys: list[str]
) -> None:
    expected = [dict(row) if row is not None else {} for row in rows]
    members = []
    for key in keys:
        chosen = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
        values = [data.draw(st.text(max_size=3)) for taken in chosen if taken]
        members.append((key, pa.array(chosen), [json.dumps(value) for value in values]))
        for row, value in zip((row for row, taken in zip(expected, chosen, strict=True) if taken), values, strict=True):
            row[key] = value  # type: ignore[assignment]
    unmapped = pa.array([None if row is None else json.dumps(row) for row in rows], pa.string())
    found = with_members(unmapped, len(rows), members)
    found.validate(full=True)
    assert [{} if text is None else json.loads(text) for text in found.to_pylist()] == expected
