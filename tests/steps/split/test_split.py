"""``split`` makes a record of each element, and every one of them is accounted for."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.steps.chain import Chain, Link
from penstock.steps.contract import TooMuch, namespace_pattern
from penstock.steps.set.config import SetConfig
from penstock.steps.set.step import Set
from penstock.steps.skip.config import SkipConfig
from penstock.steps.skip.step import Skip
from penstock.steps.split import step as splitting
from penstock.steps.split.config import SplitConfig
from penstock.steps.split.step import Split
from penstock.testing.step import ANY_DATA, DOCUMENTS, StepContract, batch_of, failed, kept


class TestSplit(StepContract):
    name = "split"
    adds = True
    configs: ClassVar[list[Any]] = [
        "a",
        {"field": "user.name", "others": "drop"},
        {"field": "/b", "empty": "skip"},
        {"field": "a.b.c", "others": "drop", "empty": "skip", "max_bytes": 30},
    ]


def split(config: Any, *data: bytes) -> Any:
    return Split(SplitConfig.model_validate(config)).apply(batch_of(*data))


CASES: list[tuple[Any, bytes, list[bytes]]] = [
    ("a", b'{"a":[1,2.50,"x"]}', [b'{"a":1}', b'{"a":2.50}', b'{"a":"x"}']),
    ("a", b'{"id":7,"a":[{"k":1},[2]],"z":0}', [b'{"id":7,"a":{"k":1},"z":0}', b'{"id":7,"a":[2],"z":0}']),
    ("o.a", b'{"o":{"a":[1,2],"n":null}}', [b'{"o":{"a":1,"n":null}}', b'{"o":{"a":2,"n":null}}']),
    ("/o/a", b'{"o":{"a":[1]}}', [b'{"o":{"a":1}}']),
    ("a", b' { "a" : [ 1 , { "b" : 2 } ] } ', [b' { "a" : 1 } ', b' { "a" : { "b" : 2 } } ']),
    ("a", b'{"a":["]",",","\\"[",null]}', [b'{"a":"]"}', b'{"a":","}', b'{"a":"\\"["}', b'{"a":null}']),
    ("a", b'{"a":[]}', [b'{"a":[]}']),
    ("a", b'{"a":null}', [b'{"a":null}']),
    ("a", b'{"b":1}', [b'{"b":1}']),
    ("o.a", b'{"o":7}', [b'{"o":7}']),
    ({"field": "a", "empty": "skip"}, b'{"a":[]}', []),
    ({"field": "a", "empty": "skip"}, b"{}", []),
    ({"field": "a", "empty": "skip"}, b'{"a":[[]]}', [b'{"a":[]}']),
    ({"field": "a", "others": "drop"}, b'{"id":7,"a":[1,2]}', [b'{"a":1}', b'{"a":2}']),
    ({"field": "o.a\\.b", "others": "drop"}, b'{"o":{"x":1,"a.b":[{}]}}', [b'{"o":{"a.b":{}}}']),
    ({"field": "a", "others": "drop"}, b'{"id":7}', [b'{"id":7}']),
]


@pytest.mark.parametrize(("config", "data", "expected"), CASES)
def test_each_element_becomes_a_record(config: Any, data: bytes, expected: list[bytes]) -> None:
    outcome = split(config, data)
    assert kept(outcome) == expected
    assert (outcome.skipped, outcome.added) == (0 if expected else 1, max(0, len(expected) - 1))


def test_what_is_no_array_and_what_grows_too_large_fails_and_the_rest_goes_on() -> None:
    outcome = split({"field": "a", "max_bytes": 40}, b'{"a":7}', b'{"a":[1,2]}', b'{"a":[1,2,3,4,5],"b":"xxxx"}', b"{")
    assert kept(outcome) == [b'{"a":1}', b'{"a":2}']
    assert sorted(failed(outcome)) == [(100, "not_array"), (102, "too_large"), (103, "not_json")]


@settings(max_examples=100)
@given(st.lists(DOCUMENTS, max_size=5))
def test_it_does_what_the_slow_way_does(documents: list[bytes]) -> None:
    outcome = split("a", *documents)
    expected = []
    for document in documents:
        value = json.loads(document)
        array = value.get("a")
        if isinstance(array, list) and array:
            expected += [{**value, "a": element} for element in array]
        elif array is None or array == []:
            expected.append(value)
    assert [json.loads(each) for each in kept(outcome)] == expected


SPLIT = Link("split", Split(SplitConfig.model_validate("a")))


def test_an_item_that_fails_leaves_its_neighbours_alone() -> None:
    """``a.x`` cannot be set where the element is a number."""
    links = [
        SPLIT,
        Link("skip", Skip(SkipConfig.model_validate("a = 'no'"))),
        Link("set", Set(SetConfig.model_validate({"a.x": "1"}))),
    ]
    batch = batch_of(b'{"a":[{},{"y":2}]}', b'{"a":[{},1,"no",2,{}]}', b'{"a":[]}')
    outcome = Chain(links).run(batch)
    assert [json.loads(each) for each in outcome.kept.column("data").to_pylist()] == [
        {"a": {"x": 1}},
        {"a": {"y": 2, "x": 1}},
        {"a": {"x": 1}},
        {"a": {"x": 1}},
    ]
    assert outcome.kept.column("item").to_pylist() == [1, 2, 1, 5]
    (failures,) = outcome.failures
    found = [(row["offset"], row["item"], row["step"]) for row in failures.to_pylist()]
    assert found == [(101, 2, "set"), (101, 4, "set"), (102, 0, "set")]
    assert outcome.added == {"split": 1 + 4}
    assert outcome.skipped == {"skip": 1}
    assert batch.num_rows + 5 == outcome.kept.num_rows + sum(outcome.skipped.values()) + failures.num_rows


@settings(max_examples=60)
@given(st.lists(ANY_DATA | st.lists(st.sampled_from([{}, 1, "no", {"b": [1, 2]}]), max_size=4).map(
    lambda a: json.dumps({"a": a}).encode()), max_size=6))  # fmt: skip
def test_in_and_added_is_out_and_no_record_is_in_two_places(data: list[bytes | None]) -> None:
    again = Link("split#2", Split(SplitConfig.model_validate("a.b")), namespace_pattern("shop"))
    links = [
        SPLIT,
        again,
        Link("skip", Skip(SkipConfig.model_validate("a = 'no'"))),
        Link("set", Set(SetConfig.model_validate({"a.x": "1"}))),
    ]
    batch = batch_of(*data)
    outcome = Chain(links).run(batch)
    lost = [(row["offset"], row["item"]) for failures in outcome.failures for row in failures.to_pylist()]
    rows_out = outcome.kept.num_rows + sum(outcome.skipped.values()) + len(lost)
    assert batch.num_rows + sum(outcome.added.values()) == rows_out
    assert len(lost) == len(set(lost))
    kept_items = [(row["offset"], row["item"]) for row in outcome.kept.select(["offset", "item"]).to_pylist()]
    assert len(kept_items) == len(set(kept_items))
    assert not set(lost) & set(kept_items)


def test_rows_of_other_namespaces_stay_between_those_that_are_split() -> None:
    batch = batch_of(b'{"a":[1,2]}', b'{"a":[3]}', b'{"a":[4,5]}')
    names = batch.set_column(3, batch.schema.field(3), pa.array(["x", "y", "x"]))
    link = Link("split", SPLIT.step, namespace_pattern("x"))
    outcome = Chain([link]).run(names)
    assert outcome.kept.column("data").to_pylist() == [b'{"a":1}', b'{"a":2}', b'{"a":[3]}', b'{"a":4}', b'{"a":5}']


def test_a_batch_that_grows_too_large_is_run_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "MOST_BYTES", 25)
    batch = batch_of(b'{"a":[1,2]}', b'{"a":[3,4]}', b'{"a":[5,6,7,8,9]}')
    with pytest.raises(TooMuch):
        SPLIT.step.apply(batch)
    pieces = list(Chain([SPLIT]).runs(batch))
    assert len(pieces) > 1
    assert [row for read, _ in pieces for row in read.column("offset").to_pylist()] == [100, 101, 102]
    made = [data for _, outcome in pieces for data in outcome.kept.column("data").to_pylist()]
    assert made == [b'{"a":%d}' % number for number in range(1, 10)]
