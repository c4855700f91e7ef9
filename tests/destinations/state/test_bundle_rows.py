"""The rows of bundles, and why some have none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.conflation.fold_rows import Said
from penstock.conflation.kinds import Sync
from penstock.destinations.state.bundle_rows import RowRules, rows_of_bundle, rows_of_pack
from penstock.destinations.state.store.contract import StateRows
from penstock.errors import RefusedError
from penstock.flatten.inner_types import InnerType

COMPLETE = RowRules("/items", ("id",), Sync.COMPLETE)
DELTA = RowRules("/items", ("id",), Sync.DELTA)
HYBRID = RowRules("", ("id",), Sync.HYBRID)


def said_of(rows: StateRows) -> list[tuple[Any, str]]:
    return [(key, Said(said).name) for key, said in zip(rows.table.column("id").to_pylist(), rows.said, strict=True)]


def test_nested_keys_are_joined_and_arrays_are_text() -> None:
    rows = rows_of_bundle(b'{"items": [{"id": 1, "a": {"B c": true}, "l": [1, {"x": null}]}, {"id": 2}]}', COMPLETE)
    assert rows.table.to_pylist() == [
        {"id": 1, "a_b_c": True, "l": '[1,{"x":null}]'},
        {"id": 2, "a_b_c": None, "l": None},
    ]
    assert [column.type for column in rows.columns] == [InnerType.INT64, InnerType.BOOL, InnerType.STRING]
    assert (rows.only_puts, rows.prunes) == (True, True)


@pytest.mark.parametrize(
    ("pointer", "data"),
    [
        ("/items", {"items": [{"id": 7}]}),
        ("items", {"items": [{"id": 7}]}),
        ("", [{"id": 7}]),
        ("/", [{"id": 7}]),
        ("/a/b", {"a": {"b": [{"id": 7}], "c": []}}),
        ("/a~1b", {"a/b": [{"id": 7}]}),
    ],
)
def test_the_pointer_leads_to_the_rows(pointer: str, data: object) -> None:
    for text in (json.dumps(data), json.dumps(data, indent=3) + "\n "):
        rows = rows_of_bundle(text.encode(), RowRules(pointer, ("id",), Sync.COMPLETE))
        assert rows.table.to_pylist() == [{"id": 7}]


_DEEP = "[" * 3000 + "]" * 3000


@pytest.mark.parametrize("value", ["1e400", r'"\ud800"', _DEEP, "12345678901234567890123"], ids=lambda text: text[:9])
def test_values_that_few_readers_take_are_kept_whatever_the_bundle_is(value: str) -> None:
    kept = value[1:-1] if value.startswith('"') else value
    row = f'{{"id": 1, "v": {value}}}'
    for rules, data in ((COMPLETE, '{"items": [%s]}'), (DELTA, '{"items": [%s]}'), (HYBRID, '{"create": [%s]}')):
        rows = rows_of_bundle((data % row).encode(), rules)
        assert rows.table.column("v").to_pylist() == [kept]


@pytest.mark.parametrize("value", ["1e400", r'"\ud800"', _DEEP], ids=lambda text: text[:9])
@pytest.mark.parametrize(
    ("rules", "data", "reason"),
    [
        (COMPLETE, '{"items": [{"id": 1, "v": %s, "V": 2}]}', "two values for one column, or .*: /V"),
        (HYBRID, '{"create": [], "other": %s}', "there is 'other' at /"),
        (HYBRID, r'{ "\ud800\"x" : %s, "create": []}', r"there is '\\ud800\\\"x' at /"),
    ],
)
def test_values_that_few_readers_take_are_in_the_way_of_no_reason(
    value: str, rules: RowRules, data: str, reason: str
) -> None:
    with pytest.raises(RefusedError, match=reason):
        rows_of_bundle((data % value).encode(), rules)


def test_an_empty_array_is_a_bundle_without_rows() -> None:
    rows = rows_of_bundle(b'{"items": [ ]}', COMPLETE)
    assert (rows.table.num_rows, rows.prunes) == (0, True)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{}", "there is nothing at /items, where an array of objects should be"),
        (b'{"other": []}', "there is nothing at /items"),
        (b"[]", "there is nothing at /items"),
        (b"null", "there is nothing at /items"),
        (b'{"items": null}', "what is at /items is null, not an array"),
        (b'{"items": {"id": 1}}', "what is at /items is object, not an array"),
        (b'{"items": "[]"}', "what is at /items is string, not an array"),
        (b'{"items": [{"id": 1}, 7]}', "the row /items/1 is no object"),
        (b'{"items": [[{"id": 1}]]}', "the row /items/0 is no object"),
        (b'{"items": [{"id": 1}, {}]}', "the row /items/1 has no value for the key column 'id'"),
        (b'{"items": [{"id": 1}, {"id": 2}, {"name": "x"}]}', "the row /items/2 has no value for the key column 'id'"),
        (b'{"items": [{"id": null, "name": 1}]}', "the row /items/0 has no value for the key column 'id'"),
        (b'{"items": [{"id": 1}, {"id": 2}, {"id": 1}]}', r"/items/2 has the key of the row /items/0 \(id = 1\)"),
        (b'{"items": [{"id": 1}, {"id": "1"}]}', "/items/1 has the key of the row /items/0"),
        (b'{"items": [{"id": 1, "a": {"b": 1}, "a_b": 2}]}', "the row /items/0 has two values for one column"),
        (b'{"items": [{"id": 1, "id": 2}]}', "the row /items/0 has two values for one column"),
        (b'{"items": [{"id": 1}]', "the data is no JSON"),
        (b'{"items": []} {"items": []}', "the data is no JSON"),
        (b'1, "x": [{"id": 1}]', "the data is no JSON"),
        (b"", "the data is no JSON"),
        (b'{"items": [{"id": 1, %s}]}' % b",".join(b'"c%d": 1' % n for n in range(1_000)), "too many different fields"),
    ],
)
def test_what_is_no_array_of_keyed_objects_is_refused_with_its_place(data: bytes, reason: str) -> None:
    for rules in (COMPLETE, DELTA):
        with pytest.raises(RefusedError, match=reason):
            rows_of_bundle(data, rules)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"created": []}, "there is 'created' at /, which is none of"),
        ({"create": {}}, "what is at /create is object, not an array"),
        ({"update": [{"id": 1}], "delete": [{"name": 1}]}, "the row /delete/0 has no value for the key column 'id'"),
        ({"update": [{"id": 1}, {"id": 1}]}, "the row /update/1 has the key of the row /update/0"),
        ([], "what is at / is array, not an object"),
    ],
)
def test_a_hybrid_that_nobody_understands_is_refused(data: object, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        rows_of_bundle(json.dumps(data).encode(), HYBRID)


@pytest.mark.parametrize(
    ("bundles", "expected", "prunes"),
    [
        ([{}], [], False),
        (
            [{"create": [1], "update": [2], "resync": [3], "delete": [4]}],
            {1: "PUT", 2: "PUT", 3: "PUT", 4: "DELETE"},
            False,
        ),
        ([{"update": [1], "delete": [1]}], {1: "DELETE"}, False),
        ([{"delete": [1]}, {"create": [1]}], {1: "PUT"}, False),
        ([{"resync_metadata": [1, 2]}], {1: "LIST", 2: "LIST"}, True),
        ([{"resync_metadata": []}], {}, True),
        ([{"create": [1, 2], "resync_metadata": [1]}], {1: "PUT", 2: "DELETE"}, True),
        ([{"create": [1]}, {"resync_metadata": [2]}, {"update": [3]}], {1: "DELETE", 2: "LIST", 3: "PUT"}, True),
        ([{"resync_metadata": [2]}, {"create": [1]}], {1: "PUT", 2: "LIST"}, True),
    ],
    ids=str,
)
def test_what_hybrids_say_of_objects(
    bundles: Sequence[dict[str, list[int]]], expected: dict[int, str], prunes: bool
) -> None:
    datas = [
        json.dumps({name: [{"id": key} for key in keys] for name, keys in each.items()}).encode() for each in bundles
    ]
    rows = rows_of_pack(datas, HYBRID)
    found = dict(said_of(rows)) if rows.table.num_rows else {}
    assert (found, rows.prunes) == (dict(expected), prunes)


def test_what_names_an_object_fills_no_column() -> None:
    data = {"update": [{"id": 1, "v": 2}], "delete": [{"id": "b", "ns": "x", "v": "text"}]}
    rows = rows_of_bundle(json.dumps(data).encode(), HYBRID)
    assert rows.table.to_pylist() == [{"id": "1", "v": 2}, {"id": "b", "v": None}]


_OPERATIONS = st.dictionaries(
    st.sampled_from(["create", "update", "delete", "resync", "resync_metadata"]),
    st.lists(st.integers(0, 4), unique=True, max_size=5),
)


@given(st.lists(_OPERATIONS, min_size=1, max_size=5), st.sets(st.integers(0, 4)))
def test_a_pack_of_hybrids_is_what_they_are_one_after_the_other(
    bundles: list[dict[str, list[int]]], before: set[int]
) -> None:
    plain: dict[int, int] = dict.fromkeys(before, -1)
    datas = []
    for number, bundle in enumerate(bundles):
        lists = {name: [{"id": key, "v": number} for key in keys] for name, keys in bundle.items()}
        datas.append(json.dumps(lists).encode())
        for name in ("resync", "create", "update"):
            plain |= dict.fromkeys(bundle.get(name, ()), number)
        listed = bundle.get("resync_metadata", plain.keys())
        plain = {key: v for key, v in plain.items() if key not in bundle.get("delete", ()) and key in listed}
    rows = rows_of_pack(datas, HYBRID)
    said = dict(said_of(rows)) if rows.table.num_rows else {}
    put = {row["id"]: row.get("v") for row in rows.table.to_pylist() if said[row["id"]] == "PUT"}
    kept = {key: -1 for key in before if said.get(key) != "DELETE" and (not rows.prunes or key in said)}
    assert kept | put == plain
