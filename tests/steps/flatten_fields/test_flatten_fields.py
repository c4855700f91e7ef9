"""``flatten_fields`` makes one level of fields and loses none of them."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings

from penstock.steps.flatten_fields.config import FlattenFieldsConfig
from penstock.steps.flatten_fields.step import FlattenFields
from penstock.testing.step import DOCUMENTS, StepContract, batch_of, failed, kept


class TestFlattenFields(StepContract):
    name = "flatten_fields"
    configs: ClassVar[list[Any]] = [{}, ".", {"separator": '"', "depth": 1}, {"depth": 2}, "é"]


CASES: list[tuple[Any, bytes, bytes]] = [
    ({}, b'{"a":{"b":1}}', b'{"a_b":1}'),
    (".", b'{"a":{"b":{"c":1.50}},"d":"x"}', b'{"a.b.c":1.50,"d":"x"}'),
    ({"depth": 1}, b'{"a":{"b":{"c":1}},"d":2}', b'{"a_b":{"c":1},"d":2}'),
    ({"depth": 2}, b'{"a":{"b":{"c":{"d":1}}}}', b'{"a_b_c":{"d":1}}'),
    ({}, b'{"z":0,"a":{"b":1,"c":2},"d":3}', b'{"z":0,"a_b":1,"a_c":2,"d":3}'),
    ({}, b'{"a":{"b":1},"c":{"d":{"e":2},"f":3}}', b'{"a_b":1,"c_d_e":2,"c_f":3}'),
    ({}, b'{"a":[{"b":{"c":1}}],"d":{"e":[1 , 2]}}', b'{"a":[{"b":{"c":1}}],"d_e":[1 , 2]}'),
    ({}, b'{"a":{},"b":{"c":{ }}}', b'{"a":{},"b_c":{ }}'),
    ({}, b'{"a":{"b":null}}', b'{"a_b":null}'),
    ({}, b' { "a" : { "b" : 1E+2 , "c" : -0 } } ', b'{"a_b":1E+2,"a_c":-0}'),
    ({}, b' { "a" : [ 1 ] , "b" : {} } ', b' { "a" : [ 1 ] , "b" : {} } '),
    ({}, b"{}", b"{}"),
    ('"', b'{"a":{"b":1}}', b'{"a\\"b":1}'),
    ({}, b'{"\\u00e9":{"q\\"":"\\ud83d\\ude00"}}', b'{"\\u00e9_q\\"":"\\ud83d\\ude00"}'),
    ({}, b'{"":{"":1}}', b'{"_":1}'),
    ({}, b'{"a":{"b":1,"b":2}}', b'{"a_b":1,"a_b":2}'),
    ({}, b'{"a":{"b":1},"a":{"c":2}}', b'{"a_b":1,"a_c":2}'),
]


@pytest.mark.parametrize(("config", "data", "expected"), CASES)
def test_nested_fields_come_up_with_their_values_as_they_stood(config: Any, data: bytes, expected: bytes) -> None:
    outcome = FlattenFields(FlattenFieldsConfig.model_validate(config)).apply(batch_of(data))
    assert kept(outcome) == [expected]


@pytest.mark.parametrize(
    ("config", "data"),
    [
        ({}, b'{"a_b":1,"a":{"b":2}}'),
        ({}, b'{"a":{"b":2},"a_b":1}'),
        ({}, b'{"a":{"b_c":1,"b":{"c":2}}}'),
        ({}, b'{"a_\\u0062":1,"a":{"b":2}}'),
        ('"', b'{"a\\u0022b":1,"a":{"b":2}}'),
        ({}, b'{"a":{"b":1},"a_b":[],' + b",".join(b'"k%d":0' % n for n in range(40)) + b"}"),
    ],
)  # fmt: skip
def test_two_fields_of_one_name_fail_and_the_rest_goes_on(config: Any, data: bytes) -> None:
    outcome = FlattenFields(FlattenFieldsConfig.model_validate(config)).apply(batch_of(b"{}", data, b"7"))
    assert kept(outcome) == [b"{}"]
    assert sorted(failed(outcome)) == [(101, "name_taken"), (102, "not_json")]


def test_a_very_deep_record_comes_through() -> None:
    deep = b'{"k":' * 5000 + b"1" + b"}" * 5000
    outcome = FlattenFields(FlattenFieldsConfig()).apply(batch_of(b'{"a":1}', deep))
    assert kept(outcome) == [b'{"a":1}', b'{"' + b"_".join([b"k"] * 5000) + b'":1}']


def slowly(value: dict[str, Any], separator: str, depth: int | None) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, inner in value.items():
        if isinstance(inner, dict) and inner and (depth is None or depth > 0):
            below = slowly(inner, separator, None if depth is None else depth - 1)
            found += [(f"{key}{separator}{name}", each) for name, each in below]
        else:
            found.append((key, inner))
    return found


@settings(max_examples=200)
@given(DOCUMENTS)
def test_it_does_what_the_slow_way_does(document: bytes) -> None:
    for separator, depth in (("_", None), (".", 1), ("x", 2)):
        config = FlattenFieldsConfig(separator=separator, depth=depth)
        outcome = FlattenFields(config).apply(batch_of(document))
        expected = slowly(json.loads(document), separator, depth)
        if len({name for name, _ in expected}) < len(expected):
            assert failed(outcome) == [(100, "name_taken")]
        else:
            assert json.loads(kept(outcome)[0], object_pairs_hook=list) == json.loads(
                json.dumps(dict(expected)), object_pairs_hook=list
            )
