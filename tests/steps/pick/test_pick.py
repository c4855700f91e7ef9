"""``pick`` keeps what it is told to, as it was, and nothing else."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.steps.pick.config import PickConfig
from penstock.steps.pick.step import Pick
from penstock.testing.step import DOCUMENTS, StepContract, batch_of, kept
from tests.steps.reference import picked


class TestPick(StepContract):
    name = "pick"
    configs: ClassVar[list[Any]] = [["a"], ["user.name", "b", "x\\.y"], {"fields": ["/a/b/c", "id"]}]


def run(fields: list[str], data: bytes) -> bytes:
    return kept(Pick(PickConfig.model_validate(fields)).apply(batch_of(data)))[0]


CASES: list[tuple[list[str], bytes, bytes]] = [
    (["a"], b'{"a":1,"b":2}', b'{"a":1}'),
    (["b"], b'{"a":1,"b":2}', b'{"b":2}'),
    (["b"], b'{"a":1,"b":2,"c":3}', b'{"b":2}'),
    (["c", "a"], b'{"a":1,"b":2,"c":3}', b'{"a":1,"c":3}'),
    (["x"], b'{"a":1,"b":2}', b"{}"),
    (["a"], b"{}", b"{}"),
    (["a.b"], b'{"a":{"b":1,"c":2}}', b'{"a":{"b":1}}'),
    (["/a/b"], b'{"z":0,"a":{"c":2,"b":1,"d":{"b":3}},"y":0}', b'{"a":{"b":1}}'),
    (["a.b"], b'{"a":{"c":2},"d":1}', b"{}"),
    (["a.b", "d"], b'{"a":{"c":2},"d":1}', b'{"d":1}'),
    (["a.b", "d"], b'{"d":1,"a":{"c":{"b":1}}}', b'{"d":1}'),
    (["a.b"], b'{"a":5}', b"{}"),
    (["a.b"], b'{"a":[{"b":1}]}', b"{}"),
    (["a", "a.b"], b'{"a":{"b":1,"c":2}}', b'{"a":{"b":1,"c":2}}'),
    (["a.b.c", "a.d"], b'{"a":{"x":1,"b":{"c":1,"y":2},"d":3}}', b'{"a":{"b":{"c":1},"d":3}}'),
    (["a\\.b"], b'{"a.b":1,"a":{"b":2}}', b'{"a.b":1}'),
    (["name"], b'{"n\\u0061me":"x","y":2}', b'{"n\\u0061me":"x"}'),
    (["a"], b'{"a":1,"b":2,"a":3}', b'{"a":1,"a":3}'),
    (["a", "b"], b' { "a" : 2.50 , "b" : {} } ', b' { "a" : 2.50 , "b" : {} } '),
    (["b"], b'{ "a": 1,\n  "b": 2,\n  "c": 3\n}', b'{\n  "b": 2}'),
]


@pytest.mark.parametrize(("fields", "data", "expected"), CASES)
def test_the_fields_stay_in_the_order_of_the_record(fields: list[str], data: bytes, expected: bytes) -> None:
    assert run(fields, data) == expected


@pytest.mark.parametrize(
    "value", [b"2.50", b"12345678901234567890123", b"1E+2", b"-0", b'"\\u00e9\\/"', b'[1 , {"a":1.0}]', b'{ "k" :null}']
)
def test_what_is_kept_keeps_every_byte(value: bytes) -> None:
    assert (
        run(["in.side"], b'{"out":1,"in":{"x":' + value + b',"side":' + value + b"}}") == b'{"in":{"side":%b}}' % value
    )


@settings(max_examples=80, deadline=None)
@given(DOCUMENTS, st.lists(st.sampled_from(["a", "b.c", "user", "user.name", "a.b", "id", "x\\.y", "a.é"]), min_size=1))
def test_it_does_what_the_slow_way_does(data: bytes, fields: list[str]) -> None:
    result = json.loads(run(fields, data))
    assert result == picked(json.loads(data), fields)
    assert list(result) == [key for key in json.loads(data) if key in result]


@pytest.mark.parametrize(
    ("config", "message"),
    [([], "at least 1"), (["a..b"], "a name is missing"), (["/"], "the whole record"), ({"fields": "a"}, "tuple")],
)
def test_a_bad_config_says_what_is_wrong(config: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PickConfig.model_validate(config)
