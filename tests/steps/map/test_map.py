"""``map`` runs its rules in order on the bytes as they stand, and tells typed destinations what was cast."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.steps.map.config import MapConfig
from penstock.steps.map.step import Map
from penstock.testing.step import DOCUMENTS, StepContract, batch_of, failed, kept
from tests.steps.reference import moved

Rules = list[dict[str, Any]]


class TestMap(StepContract):
    name = "map"
    configs: ClassVar[list[Any]] = [
        {},
        {"fields": [{"src": "a", "dst": "b"}, {"src": "/b", "dst": "/user/b"}, {"src": "c", "action": "remove"}]},
        {
            "keep_unmapped": False,
            "fields": [{"src": "/a/b", "dst": "/x"}, {"src": "id", "action": "cast", "type": "int"}],
        },
        {"fields": [{"src": "user", "dst": "/"}, {"src": "/", "dst": "/raw"}]},
        {"fields": [{"dst": "a/b", "action": "constant", "value": {"k": [1, None]}}, {"src": "a", "dst": "user"}]},
    ]


def make(rules: Rules, keep_unmapped: bool = True) -> Map:
    return Map(MapConfig.model_validate({"keep_unmapped": keep_unmapped, "fields": rules}))


CASES: list[tuple[Rules, bytes, bytes]] = [
    ([{"src": "/b", "dst": "/a/y"}], b'{"a":{"x":1},"b":2}', b'{"a":{"x":1,"y":2}}'),
    ([{"src": "b", "dst": "c"}], b'{"a":1,"b":2.50,"d":3}', b'{"a":1,"c":2.50,"d":3}'),
    ([{"src": "/UserId", "dst": "/UID", "type": "bigint"}], b'{"UserId":7,"userid":8}', b'{"UID":7,"userid":8}'),
    ([{"src": "/a/b", "dst": "/c"}], b'{"a":{"b":1,"x":2}}', b'{"a":{"x":2},"c":1}'),
    ([{"src": "/missing", "dst": "/a/b"}], b'{"a":1}', b'{"a":1}'),
    ([{"src": "/a", "dst": "/b"}, {"src": "/b", "dst": "/c"}], b'{"a":1}', b'{"c":1}'),
    ([{"src": "/a", "dst": "/b"}], b'{"a":1,"b":{"x":2}}', b'{"b":1}'),
    ([{"src": "/a", "dst": "/b"}], b'{"a":{"y":2.50},"b":{"x":1.0}}', b'{"b":{"x":1.0,"y":2.50}}'),
    (
        [{"src": "/a", "dst": "/b"}],
        b'{"a":{"k":{"q":1},"s":9},"b":{"k":{"p":2},"s":{}}}',
        b'{"b":{"k":{"p":2,"q":1},"s":9}}',
    ),
    ([{"src": "/props", "dst": "/"}], b'{"props":{"x":1e0,"id":2},"id":1}', b'{"id":2,"x":1e0}'),
    ([{"src": "/p/q", "dst": "/"}], b'{"p":{"q":{"x":1},"r":2}}', b'{"p":{"r":2},"x":1}'),
    ([{"src": "/", "dst": "/raw"}], b' { "a" : 1.0 } ', b'{"raw":{ "a" : 1.0 }}'),
    ([{"src": "/", "dst": "/r/s"}], b'{"a":1}', b'{"r":{"s":{"a":1}}}'),
    ([{"src": "/a", "dst": "/a/b"}], b'{"a":1}', b'{"a":{"b":1}}'),
    ([{"src": "/a/b", "dst": "/a"}], b'{"a":{"b":1,"c":2}}', b'{"a":1}'),
    ([{"src": "/a", "dst": "/a"}], b'{"a":{"b":1}}', b'{"a":{"b":1}}'),
    ([{"src": "/a", "action": "remove"}], b'{"a":1,"b":2}', b'{"b":2}'),
    ([{"src": "a/b", "action": "remove"}], b'{"a":{"b":1}}', b'{"a":{}}'),
    ([{"dst": "/a/b", "action": "constant", "value": "x"}], b"{}", b'{"a":{"b":"x"}}'),
    ([{"dst": "/a", "action": "constant", "value": None}], b'{"a":1}', b'{"a":null}'),
    ([{"dst": "/a", "action": "constant", "value": {"k": [1, "é"]}}], b"{}", '{"a":{"k":[1,"é"]}}'.encode()),
    ([{"src": "/a", "action": "cast", "type": "bigint"}], b'{"a":"7"}', b'{"a":"7"}'),
    ([{"src": "/a~1b", "dst": "/c"}], b'{"a/b":1}', b'{"c":1}'),
]


@pytest.mark.parametrize(("rules", "data", "expected"), CASES)
def test_the_rules_run_in_order_and_in_place(rules: Rules, data: bytes, expected: bytes) -> None:
    assert kept(make(rules).apply(batch_of(data))) == [expected]


EVENT = b'{"_timestamp":"t","eventn_ctx":{"event_id":"e","ip":1},"a":1,"b":{"c":2,"d":3},"z":0}'


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], b'{"_timestamp":"t","eventn_ctx":{"event_id":"e"}}'),
        ([{"src": "/a", "dst": "/x"}], b'{"_timestamp":"t","eventn_ctx":{"event_id":"e"},"x":1}'),
        (
            [{"src": "/b/c", "action": "cast", "type": "int"}],
            b'{"_timestamp":"t","eventn_ctx":{"event_id":"e"},"b":{"c":2}}',
        ),
        (
            [{"dst": "/a/k", "action": "constant", "value": 5}],
            b'{"_timestamp":"t","eventn_ctx":{"event_id":"e"},"a":{"k":5}}',
        ),
        ([{"src": "/b", "dst": "/"}], b'{"_timestamp":"t","eventn_ctx":{"event_id":"e"},"c":2,"d":3}'),
        ([{"src": "/", "dst": "/raw"}], b'{"raw":' + EVENT + b"}"),
        ([{"src": "/a", "action": "remove"}], b'{"_timestamp":"t","eventn_ctx":{"event_id":"e"}}'),
    ],
)
def test_without_unmapped_fields_time_and_id_survive(rules: Rules, expected: bytes) -> None:
    assert kept(make(rules, keep_unmapped=False).apply(batch_of(EVENT))) == [expected]


@pytest.mark.parametrize(
    ("rule", "data", "place"),
    [
        ({"src": "/b", "dst": "/a/x/y"}, b'{"a":{"x":1},"b":2}', "/a/x is not an object"),
        ({"dst": "/a/x", "action": "constant", "value": 1}, b'{"a":[]}', "/a is not an object"),
        ({"src": "/a", "dst": "/"}, b'{"a":[1]}', "/a is not an object"),
    ],
)
def test_a_path_through_a_value_fails_the_record_and_says_where(rule: dict[str, Any], data: bytes, place: str) -> None:
    outcome = make([rule]).apply(batch_of(b'{"n":1}', data))
    assert failed(outcome) == [(101, "path_blocked")]
    assert place in outcome.failures.to_pylist()[0]["message"]


@pytest.mark.parametrize(
    ("rules", "casts"),
    [
        ([], {}),
        ([{"src": "/price", "action": "cast", "type": "numeric(12,2)"}], {"/price": "numeric(12,2)"}),
        ([{"dst": "price", "action": "cast", "type": "int"}], {"/price": "int"}),
        ([{"src": "/UserId", "dst": "/UID", "type": "bigint"}], {"/UID": "bigint"}),
        ([{"src": "a", "action": "cast", "type": "int"}, {"src": "a", "dst": "b/c"}], {"/b/c": "int"}),
        ([{"src": "a/x", "action": "cast", "type": "int"}, {"src": "a", "dst": "b"}], {"/b/x": "int"}),
        ([{"src": "_timestamp", "action": "cast", "type": "date"}], {"/_timestamp": "date"}),
        ([{"src": "_timestamp", "dst": "at"}], {"/at": "timestamp with time zone"}),
        ([{"dst": "c", "action": "constant", "value": 1, "type": "smallint"}], {"/c": "smallint"}),
    ],
)
def test_types_are_told_to_destinations(rules: Rules, casts: dict[str, str]) -> None:
    assert make(rules).casts == casts


PATHS = st.lists(st.sampled_from(["a", "b", "user", "name"]), min_size=1, max_size=3)


@settings(max_examples=80, deadline=None)
@given(DOCUMENTS, PATHS, PATHS)
def test_a_move_does_what_the_slow_way_does(data: bytes, source: list[str], target: list[str]) -> None:
    outcome = make([{"src": "/".join(source), "dst": "/".join(target)}]).apply(batch_of(data))
    before = json.loads(data)
    expected = before if source == target else moved(before, source, target)
    assert [json.loads(some) for some in kept(outcome)] == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([{"src": "a", "action": "copy"}], "rule 0: unknown action 'copy'.*move, remove, cast, constant"),
        ([{"src": "a", "dst": "b"}, {"src": "a"}], "rule 1: move needs dst"),
        ([{"dst": "a"}], "rule 0: move needs src"),
        ([{"src": "a", "action": "cast"}], "rule 0: cast needs type"),
        ([{"action": "cast", "type": "int"}], "rule 0: cast needs src"),
        ([{"action": "cast", "type": "int", "src": "/"}], "rule 0: cast of '/'"),
        ([{"action": "remove"}], "rule 0: remove needs src"),
        ([{"action": "remove", "src": "/"}], "rule 0: remove of '/'"),
        ([{"action": "constant", "value": 1}], "rule 0: constant needs dst"),
        ([{"action": "constant", "dst": "a"}], "rule 0: constant needs value"),
        ([{"action": "constant", "dst": "a", "value": float("nan")}], "rule 0: constant cannot set nan"),
        ([{"src": "a//b", "dst": "c"}], "rule 0: src 'a//b' is not a path"),
        ([{"src": "a", "dst": "b", "typ": "int"}], "Extra inputs"),
    ],
)
def test_a_bad_rule_is_refused_by_its_number(rules: Rules, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(rules)
