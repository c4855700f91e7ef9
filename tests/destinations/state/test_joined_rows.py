"""The rows of many bundles that are made at once are those of each bundle, or nobody's."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.conflation.kinds import Sync
from penstock.destinations.state.bundle_rows import RowRules, rows_of_bundle
from penstock.destinations.state.writing.joined_rows import rows_of_each
from penstock.errors import RefusedError

RULES = RowRules("/items", ("id",), Sync.COMPLETE)
GOOD = b'{"items": [{"id": 1}]}'


def text(*items: object) -> bytes:
    return json.dumps({"items": items}).encode()


def test_each_bundle_has_its_own_rows() -> None:
    rows = rows_of_each([text({"id": 1, "x": "a"}, {"id": 2}), text(), text({"id": 1, "y": 2.5})], RULES)
    assert rows is not None
    assert [each.table.to_pylist() for each in rows] == [
        [{"id": 1, "x": "a", "y": None}, {"id": 2, "x": None, "y": None}],
        [],
        [{"id": 1, "x": None, "y": 2.5}],
    ]
    assert all(each.prunes and each.only_puts for each in rows)


@pytest.mark.parametrize("other", [0.5, "1", True])
def test_what_another_source_calls_its_objects_does_not_decide_which_are_the_same(other: object) -> None:
    assert rows_of_each([text({"id": 1}), text({"id": other})], RULES) is None
    assert rows_of_bundle(text({"id": 1}), RULES).table.column("id").to_pylist() == [1]


def test_deltas_say_nothing_of_objects_that_they_lack() -> None:
    rows = rows_of_each([GOOD, GOOD], RowRules("/items", ("id",), Sync.DELTA))
    assert rows is not None
    assert not any(each.prunes for each in rows)


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"{",
        b"{}",
        b"[]",
        b'{"items": {}}',
        b'{"items": [1]}',
        b'{"items": [{}]}',
        b'{"items": [{"x": 1}]}',
        b'{"items": [{"id": null}]}',
        b'{"items": [{"id": 1}, {"id": 1}]}',
        b'{"items": [{"id": 1, "a_b": 1, "a": {"b": 2}}]}',
        b'{"items": []}, "": {"items": []}',
        b'{"items": []}}',
    ],
)
def test_what_is_refused_in_one_is_left_to_a_closer_look(bad: bytes) -> None:
    with pytest.raises(RefusedError):
        rows_of_bundle(bad, RULES)
    assert rows_of_each([GOOD, bad, GOOD], RULES) is None


@given(
    st.lists(
        st.lists(
            st.fixed_dictionaries(
                {"id": st.integers(0, 3)}, optional={"x": st.integers() | st.text(), "in": st.just({"n": 1.5})}
            ),
            max_size=3,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_all_is_refused_if_one_bundle_is_and_else_nothing_is_lost(bundles: list[list[dict[str, object]]]) -> None:
    datas = [text(*items) for items in bundles]
    alone = []
    for data in datas:
        try:
            alone.append(rows_of_bundle(data, RULES).table.num_rows)
        except RefusedError:
            alone.append(-1)
    rows = rows_of_each(datas, RULES)
    if -1 in alone:
        assert rows is None
    else:
        assert rows is not None
        assert [each.table.num_rows for each in rows] == alone
        assert [each.table.column("id").to_pylist() if each.table.num_rows else [] for each in rows] == [
            [item["id"] for item in items] for items in bundles
        ]
