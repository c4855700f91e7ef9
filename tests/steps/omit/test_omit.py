"""``omit`` takes out what it is told to, leaves no trace of it, and touches nothing else."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.steps.omit.config import OmitConfig
from penstock.steps.omit.step import Omit
from penstock.testing.step import DOCUMENTS, StepContract, batch_of, kept
from tests.steps.reference import omitted


class TestOmit(StepContract):
    name = "omit"
    configs: ClassVar[list[Any]] = [["a"], ["user.name", "b", "x\\.y"], {"fields": ["/a/b/c", "é"]}]


def run(fields: list[str], data: bytes) -> bytes:
    return kept(Omit(OmitConfig.model_validate(fields)).apply(batch_of(data)))[0]


CASES: list[tuple[list[str], bytes, bytes]] = [
    (["a"], b'{"a":1,"b":2}', b'{"b":2}'),
    (["b"], b'{"a":1,"b":2}', b'{"a":1}'),
    (["b"], b'{"a":1,"b":2,"c":3}', b'{"a":1,"c":3}'),
    (["a"], b'{"a":1}', b"{}"),
    (["a", "b"], b'{"a":1,"b":2,"c":3}', b'{"c":3}'),
    (["b", "c"], b'{"a":1,"b":2,"c":3}', b'{"a":1}'),
    (["a", "c"], b'{"a":1,"b":2,"c":3}', b'{"b":2}'),
    (["a", "b", "c"], b'{ "a" : 1 , "b" : 2 , "c" : 3 }', b"{}"),
    (["card.number"], b'{"card":{"number":"4","kind":"v"}}', b'{"card":{"kind":"v"}}'),
    (["/card/number"], b'{"card":{"number":"4"},"x":0}', b'{"card":{},"x":0}'),
    (["card.number"], b'{"card":"none","number":1}', b'{"card":"none","number":1}'),
    (["card.number"], b'{"card":[{"number":1}]}', b'{"card":[{"number":1}]}'),
    (["a", "a.b"], b'{"a":{"b":1},"c":2}', b'{"c":2}'),
    (["a\\.b"], b'{"a.b":1,"a":{"b":2}}', b'{"a":{"b":2}}'),
    (["ssn"], b'{"s\\u0073n":1,"x":2}', b'{"x":2}'),
    (["ssn"], b'{"ssn":1,"x":2,"ssn":3}', b'{"x":2}'),
    (["a.ssn"], b'{"a":{"ssn":1},"a":{"ssn":2,"k":3}}', b'{"a":{},"a":{"k":3}}'),
    (["missing"], b' { "x" : 2.50 } ', b' { "x" : 2.50 } '),
    (["b"], b'{ "a": 1,\n  "b": 2,\n  "c": 3\n}', b'{ "a": 1,\n  "c": 3\n}'),
    (["Ssn"], b'{"ssn":1}', b'{"ssn":1}'),
]


@pytest.mark.parametrize(("fields", "data", "expected"), CASES)
def test_the_fields_are_gone_and_the_rest_is_as_it_was(fields: list[str], data: bytes, expected: bytes) -> None:
    assert run(fields, data) == expected


def test_what_is_not_omitted_keeps_every_byte() -> None:
    rest = b'"n":2.50,"big":12345678901234567890123,"e":1E+2,"t":"\\u00e9\\/\\ud800","z":-0,"l":[1 , {"a":1.0}]'
    assert run(["gone"], b'{"gone":{"deep":[1,2]},' + rest + b"}") == b"{" + rest + b"}"


@settings(max_examples=80, deadline=None)
@given(DOCUMENTS, st.lists(st.sampled_from(["a", "b.c", "user", "user.name", "a.b", "id", "x\\.y", "a.é"]), min_size=1))
def test_it_does_what_the_slow_way_does(data: bytes, fields: list[str]) -> None:
    assert json.loads(run(fields, data)) == omitted(json.loads(data), fields)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ([], "at least 1"),
        (["a..b"], "a name is missing"),
        (["/"], "the whole record"),
        ({"field": ["a"]}, "Extra inputs"),
        ([""], "a name is missing"),
    ],
)
def test_a_bad_config_says_what_is_wrong(config: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OmitConfig.model_validate(config)
