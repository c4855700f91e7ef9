"""``set`` puts computed values where it is told to, and leaves the rest as it was."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.steps.set.config import SetConfig
from penstock.steps.set.step import Set
from penstock.testing.step import DOCUMENTS, StepContract, batch_of, failed, kept
from tests.steps.reference import put


class TestSet(StepContract):
    name = "set"
    configs: ClassVar[list[Any]] = [
        {"a": "1"},
        {"user.name": "upper(coalesce(user.name, 'none'))", "b.c.d": "a"},
        {"fields": {"total": "price * 2 + length(name)", "price": "if(price > 10, cast(price as string), user)"}},
        {"x": "concat(a, '-', b)", "y": "round(price / id, 2)", "z": "a = b or not c"},
    ]


def run(fields: dict[str, Any], data: bytes) -> bytes:
    return kept(Set(SetConfig.model_validate(fields)).apply(batch_of(data)))[0]


CASES: list[tuple[dict[str, Any], bytes, bytes]] = [
    ({"b": "1"}, b'{"a":0}', b'{"a":0,"b":1}'),
    ({"b": "1"}, b"{}", b'{"b":1}'),
    ({"b": "1"}, b" { } ", b' {"b":1 } '),
    ({"a": "a + 1"}, b'{"a":1,"z":0}', b'{"a":2,"z":0}'),
    ({"a": "'x'"}, b'{ "a" : [1,2] , "z" : 0 }', b'{ "a" : "x" , "z" : 0 }'),
    ({"t": "price * n"}, b'{"price":2.5,"n":2}', b'{"price":2.5,"n":2,"t":5.0}'),
    ({"t": "a", "u": "t"}, b'{"a":2.50}', b'{"a":2.50,"t":2.50,"u":2.50}'),
    ({"c": "o"}, b'{"o":{ "k" : [1.0, "\\u00e9"]}}', b'{"o":{ "k" : [1.0, "\\u00e9"]},"c":{ "k" : [1.0, "\\u00e9"]}}'),
    (
        {"c": "coalesce(x, y)"},
        b'{"y":12345678901234567890123}',
        b'{"y":12345678901234567890123,"c":12345678901234567890123}',
    ),
    (
        {
            "b": "123456789012345678901234567890",
            "c": "-1E400",
            "d": "cast(a as double)",
            "e": "if(true, .10000000000000000001, a)",
        },
        b'{"a":1e400}',
        b'{"a":1e400,"b":123456789012345678901234567890,"c":-1e400,"d":null,"e":0.10000000000000000001}',
    ),
    ({"a.b.c": "1"}, b"{}", b'{"a":{"b":{"c":1}}}'),
    ({"a.b.c": "1"}, b'{"a":{"x":0}}', b'{"a":{"x":0,"b":{"c":1}}}'),
    ({"a.b.c": "1"}, b'{"a":{"b":{}}}', b'{"a":{"b":{"c":1}}}'),
    ({"a.b.c": "1"}, b'{"a":{"b":null},"z":0}', b'{"a":{"b":{"c":1}},"z":0}'),
    ({"/a/b": "1"}, b'{"a":{"b":2}}', b'{"a":{"b":1}}'),
    ({"x\\.y": "1"}, b"{}", b'{"x.y":1}'),
    ({"s": "concat(a, '\"', '\\\\', '\\n')"}, b'{"a":"\\u00e9"}', b'{"a":"\\u00e9","s":"\xc3\xa9\\"\\\\\\u000a"}'),
    ({"n": "a"}, b"{}", b'{"n":null}'),
    ({"n": "null"}, b'{"n":1}', b'{"n":null}'),
    ({"b": "a > 1"}, b'{"a":2}', b'{"a":2,"b":true}'),
    ({"b": True, "c": 5, "d": 1.5}, b"{}", b'{"b":true,"c":5,"d":1.5}'),
    ({"b": "a / 2"}, b'{"a":4}', b'{"a":4,"b":2.0}'),
    ({"b": "cast(a as string)"}, b'{"a":2.50}', b'{"a":2.50,"b":"2.50"}'),
    ({"b": "case when a > 1 then 'big' else 'small' end"}, b'{"a":1}', b'{"a":1,"b":"small"}'),
    ({"b": "record.namespace", "c": "record.headers.token"}, b"{}", b'{"b":"shop","c":"site"}'),
    ({"a": "2"}, b'{"a":0,"a":1}', b'{"a":0,"a":2}'),
    ({"b": "9223372036854775807 + 0"}, b"{}", b'{"b":9223372036854775807}'),
]


@pytest.mark.parametrize(("fields", "data", "expected"), CASES)
def test_the_field_has_its_new_value(fields: dict[str, Any], data: bytes, expected: bytes) -> None:
    assert run(fields, data) == expected


@pytest.mark.parametrize("blocked", [b"1", b'"x"', b"true", b"[1]"])
def test_a_path_through_a_value_fails_and_says_where(blocked: bytes) -> None:
    step = Set(SetConfig.model_validate({"a.b.c": "1", "d": "2"}))
    outcome = step.apply(batch_of(b'{"a":{"b":%b}}' % blocked, b"{}"))
    assert failed(outcome) == [(100, "path_blocked")]
    message = outcome.failures.to_pylist()[0]["message"]
    assert "/a/b/c" in message
    assert "/a/b is not an object" in message
    assert kept(outcome) == [b'{"a":{"b":{"c":1}},"d":2}']


PATHS = st.lists(st.sampled_from(["a", "b", "user", "name", "id"]), min_size=1, max_size=3)


@settings(max_examples=80, deadline=None)
@given(DOCUMENTS, PATHS)
def test_it_does_what_the_slow_way_does(data: bytes, path: list[str]) -> None:
    outcome = Set(SetConfig.model_validate({".".join(path): "'new'"})).apply(batch_of(data))
    expected = put(json.loads(data), path, "new")
    assert [json.loads(some) for some in kept(outcome)] == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"a": float("inf")}, "too large for YAML. Put it between quotes"),
        ({}, "at least 1"),
        ({"a": "b +"}, "cannot be read near"),
        ({"a": "sha2(b)"}, "SHA2.* is not supported"),
        ({"a..b": "1"}, "a name is missing"),
        ({"a": ["x"]}, "string"),
    ],
)
def test_a_bad_config_says_what_is_wrong(config: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SetConfig.model_validate(config)
