"""``rename`` gives fields other names or places; their values stay as they were."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.steps.rename.config import RenameConfig
from penstock.steps.rename.step import Rename
from penstock.testing.step import DOCUMENTS, StepContract, batch_of, failed, kept
from tests.steps.reference import renamed


class TestRename(StepContract):
    name = "rename"
    configs: ClassVar[list[Any]] = [
        {"a": "b"},
        {"a": "b", "b": "a"},
        {"fields": {"user.name": "x", "a": "c.d"}},
        {"a.b": "/z", "id": "/a/id"},
    ]


def run(fields: dict[str, str], data: bytes) -> bytes:
    return kept(Rename(RenameConfig.model_validate(fields)).apply(batch_of(data)))[0]


CASES: list[tuple[dict[str, str], bytes, bytes]] = [
    ({"a": "z"}, b'{"a":1,"b":2}', b'{"z":1,"b":2}'),
    ({"b": "a.b"}, b'{"b":2.50}', b'{"a":{"b":2.50}}'),
    ({"a": "b"}, b'{"a":1,"b":2,"c":3}', b'{"b":1,"c":3}'),
    ({"b": "a"}, b'{"a":1,"b":2,"c":3}', b'{"a":2,"c":3}'),
    ({"a": "b", "b": "a"}, b'{"a":1,"b":2}', b'{"b":1,"a":2}'),
    ({"a": "b", "b": "c"}, b'{"a":1,"b":2}', b'{"b":1,"c":2}'),
    ({"missing": "b"}, b'{"a":1,"b":2}', b'{"a":1,"b":2}'),
    ({"a": "a"}, b'{"a":1}', b'{"a":1}'),
    ({"card.no": "number"}, b'{"card":{"no":"4"},"number":0}', b'{"card":{"number":"4"},"number":0}'),
    ({"card.no": "card.number"}, b'{"card":{"no":"4","x":1}}', b'{"card":{"number":"4","x":1}}'),
    ({"card.no": "/number"}, b'{"card":{"no":"4","x":1}}', b'{"card":{"x":1},"number":"4"}'),
    ({"zip": "address.zip"}, b'{"zip":"1","address":{"city":"x"}}', b'{"address":{"city":"x","zip":"1"}}'),
    ({"zip": "address.zip"}, b'{"zip":"1","address":{"zip":0,"c":1}}', b'{"address":{"zip":"1","c":1}}'),
    ({"zip": "address.zip"}, b'{"address":{"zip":0}}', b'{"address":{"zip":0}}'),
    ({"a": "b.c"}, b'{"a":{"x":1},"b":{"c":{"y":2}}}', b'{"b":{"c":{"x":1}}}'),
    ({"card.no": "x"}, b'{"card":[{"no":1}]}', b'{"card":[{"no":1}]}'),
    ({"a\\.b": "c"}, b'{"a.b":1,"a":{"b":2}}', b'{"c":1,"a":{"b":2}}'),
    ({"a": 'q\\."r'}, b'{"a":1}', b'{"q.\\"r":1}'),
    ({"a": "z"}, b'{"\\u0061":1,"b":2}', b'{"z":1,"b":2}'),
    ({"a": "z"}, b'{"a":1,"a":2}', b'{"z":1,"z":2}'),
    ({"a": "a much longer name"}, b' { "a" : 1 , "b" : 2 } ', b' { "a much longer name" : 1 , "b" : 2 } '),
    ({"a": "b", "a.x": "y"}, b'{"a":{"x":1}}', b'{"b":{"y":1}}'),
]


@pytest.mark.parametrize(("fields", "data", "expected"), CASES)
def test_a_field_has_its_new_name(fields: dict[str, str], data: bytes, expected: bytes) -> None:
    assert run(fields, data) == expected


def test_many_long_names_fit() -> None:
    data = b"{" + b",".join(b'"a":%d' % number for number in range(500)) + b"}"
    long = "n" * 200
    results = kept(Rename(RenameConfig.model_validate({"a": long})).apply(batch_of(data, data)))
    assert results == [data.replace(b'"a"', f'"{long}"'.encode())] * 2


def test_a_move_through_a_value_fails_and_says_where() -> None:
    outcome = Rename(RenameConfig.model_validate({"a": "b.c.d"})).apply(batch_of(b'{"a":1,"b":{"c":7}}', b'{"a":1}'))
    assert failed(outcome) == [(100, "path_blocked")]
    assert "/b/c is not an object" in outcome.failures.to_pylist()[0]["message"]
    assert kept(outcome) == [b'{"b":{"c":{"d":1}}}']


NAMES = st.dictionaries(
    st.sampled_from(["a", "b", "c", "id"]), st.sampled_from(["a", "b", "c", "user", "new"]), min_size=1
)


@settings(max_examples=80, deadline=None)
@given(DOCUMENTS, NAMES.filter(lambda names: len(set(names.values())) == len(names)))
def test_it_does_what_the_slow_way_does(data: bytes, names: dict[str, str]) -> None:
    result = json.loads(run(names, data))
    expected = renamed(json.loads(data), names)
    assert result == expected
    assert list(result) == list(expected)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "at least 1"),
        ({"a": "x", "b": "x"}, "cannot both become 'x'"),
        ({"a.b": "c", "d": "a.c"}, "cannot both become"),
        ({"a": ""}, "a name is missing"),
        ({"/": "x"}, "the whole record"),
    ],
)
def test_a_bad_config_says_what_is_wrong(config: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RenameConfig.model_validate(config)
