"""Policies as users write them: what is understood, and what is refused, with the reason."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from penstock.sampling.policy_config import POLICY_TYPES, Policies, Policy, all_policies
from tests.sampling.support import policies

ALL = {"name": "all", "type": "always_sample"}
READ: dict[str, dict[str, Any]] = {
    "probabilistic": {"sampling_percentage": 1.5, "hash_salt": "x"},
    "remote_probabilistic": {"rate_from": "./rate", "default_rate": 1},
    "span_count": {"min_spans": 2, "max_spans": 20},
    "latency": {"threshold_ms": 5000, "upper_threshold_ms": 9000},
    "status_code": {"status_codes": ["OK", "ERROR", "UNSET"]},
    "ottl_condition": {"span": ['name == "x"'], "spanevent": ["true"], "error_mode": "silent"},
    "string_attribute": {"key": "k", "values": ["a.*"], "enabled_regex_matching": True, "cache_max_size": 10},
    "numeric_attribute": {"key": "k", "min_value": 1, "max_value": 5, "invert_match": True},
    "boolean_attribute": {"key": "k", "value": True},
    "rate_limiting": {"spans_per_second": 35},
    "bytes_limiting": {"bytes_per_second": 1000, "burst_capacity": 5000},
    "always_sample": {},
    "trace_state": {"key": "k", "values": ["a"]},
    "trace_flags": {},
    "threshold": {},
    "and": {"and_sub_policy": [ALL]},
    "or": {"or_sub_policy": [ALL]},
    "not": {"not_sub_policy": ALL},
    "root_spans": {"sub_policy": ALL},
    "downgrader": {"sub_policy": ALL, "downgrade_to": "LowPriority"},
}


def test_every_type_is_in_the_table() -> None:
    assert set(READ) == set(POLICY_TYPES)


@pytest.mark.parametrize("kind", READ)
def test_options_stand_under_the_type_or_beside_it(kind: str) -> None:
    nested = policies({"name": "p", "type": kind, kind: READ[kind]})
    assert nested == policies({"name": "p", "type": kind, **READ[kind]})
    for option in READ[kind]:
        assert option in type(nested[0]).model_fields


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("string_attribute", {"regex": True, "invert": True}, {"enabled_regex_matching": True, "invert_match": True}),
        ("numeric_attribute", {"min": 1, "max": 2}, {"min_value": 1, "max_value": 2}),
        ("boolean_attribute", {"invert": True}, {"invert_match": True}),
    ],
)
def test_short_names_of_options_are_understood(kind: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    rest = {"name": "p", "type": kind, "key": "k"}
    rest |= {"values": ["a"]} if kind == "string_attribute" else {"value": True} if kind == "boolean_attribute" else {}
    assert policies({**rest, **old}) == policies({**rest, **new})


def test_a_type_without_options_may_have_an_empty_key() -> None:
    assert policies({**ALL, "always_sample": None}) == policies(ALL)


def test_policies_are_numbered_each_before_its_parts() -> None:
    inner = {"name": "b", "type": "not", "not_sub_policy": {"name": "c", "type": "always_sample"}}
    chosen = policies(
        {"name": "a", "type": "and", "and_sub_policy": [inner, {**ALL, "name": "d"}]}, {**ALL, "name": "e"}
    )
    assert [policy.name for policy in all_policies(chosen)] == ["a", "b", "c", "d", "e"]


REFUSED: list[tuple[str, list[Any], tuple[str | int, ...], str]] = [
    ("no policies", [], (), "at least 1"),
    ("unknown type", [{"name": "p", "type": "latncy"}], (0, "type"), "there is no policy of type 'latncy'"),
    ("no type", [{"name": "p"}], (0, "type"), "missing key 'type'"),
    ("no mapping", ["all"], (0,), "expected a policy"),
    ("no name", [{"type": "always_sample"}], (0, "always_sample", "name"), "required"),
    ("an empty name", [{**ALL, "name": ""}], (0, "always_sample", "name"), "at least 1 character"),
    ("a name twice", [ALL, ALL], (1, "name"), "there is a policy 'all' already"),
    (
        "a name twice, of a part",
        [ALL, {"name": "x", "type": "or", "or": {"or_sub_policy": [{**ALL, "name": "y"}, ALL]}}],
        (1, "or", "or_sub_policy", 1, "name"),
        "there is a policy 'all' already",
    ),
    (
        "no codes",
        [{"name": "p", "type": "status_code", "status_codes": []}],
        (0, "status_code", "status_codes"),
        "1 item",
    ),
    (
        "an unknown code",
        [{"name": "p", "type": "status_code", "status_codes": ["FINE"]}],
        (0, "status_code", "status_codes", 0),
        "'UNSET', 'OK' or 'ERROR'",
    ),
    (
        "a bad regular expression",
        [{"name": "p", "type": "string_attribute", "key": "k", "values": ["("], "regex": True}],
        (0, "string_attribute"),
        "'(' is not a regular expression",
    ),
    (
        "no values",
        [{"name": "p", "type": "string_attribute", "key": "k", "values": []}],
        (0, "string_attribute", "values"),
        "",
    ),
    (
        "no key",
        [{"name": "p", "type": "boolean_attribute", "value": True}],
        (0, "boolean_attribute", "key"),
        "required",
    ),
    (
        "no range",
        [{"name": "p", "type": "numeric_attribute", "key": "k"}],
        (0, "numeric_attribute"),
        "needs 'min_value'",
    ),
    (
        "a range from above",
        [{"name": "p", "type": "numeric_attribute", "key": "k", "min": 2, "max": 1}],
        (0, "numeric_attribute"),
        "'min_value' 2 is above",
    ),
    ("no condition", [{"name": "p", "type": "ottl_condition"}], (0, "ottl_condition"), "needs a condition"),
    ("a negative latency", [{"name": "p", "type": "latency", "threshold_ms": -1}], (0, "latency", "threshold_ms"), ""),
    ("an unknown option", [{**ALL, "always": 1}], (0, "always_sample", "always"), "not permitted"),
    (
        "not a number",
        [{"name": "p", "type": "probabilistic", "sampling_percentage": float("nan")}],
        (0, "probabilistic", "sampling_percentage"),
        "finite",
    ),
    ("no parts", [{"name": "p", "type": "and", "and_sub_policy": []}], (0, "and", "and_sub_policy"), "1 item"),
    (
        "an upgrade",
        [{"name": "p", "type": "downgrader", "downgrade_to": "Sampled", "sub_policy": ALL}],
        (0, "downgrader", "downgrade_to"),
        "'Pending', 'NotSampled' or 'LowPriority'",
    ),
    (
        "an unknown type inside",
        [{"name": "p", "type": "not", "not": {"not_sub_policy": {"name": "x", "type": "alwas_sample"}}}],
        (0, "not", "not_sub_policy", "type"),
        "there is no policy of type 'alwas_sample'",
    ),
]


@pytest.mark.parametrize(("given", "place", "reason"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_is_refused_and_why(given: list[Any], place: tuple[str | int, ...], reason: str) -> None:
    with pytest.raises(ValidationError) as caught:
        policies(*given)
    found = [error for error in caught.value.errors() if error["loc"] == place]
    assert any(reason in error["msg"] for error in found), caught.value.errors()


def test_a_name_that_is_nearly_right_is_suggested() -> None:
    with pytest.raises(ValidationError) as caught:
        policies({"name": "p", "type": "probabilstic"})
    assert caught.value.errors()[0]["ctx"]["fix"] == "Did you mean 'probabilistic'?"


def test_the_schema_names_every_type() -> None:
    reader: TypeAdapter[tuple[Policy, ...]] = TypeAdapter(Policies)
    schema = reader.json_schema()
    assert set(schema["items"]["discriminator"]["mapping"]) == set(POLICY_TYPES)
