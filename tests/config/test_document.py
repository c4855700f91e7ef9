"""How YAML is read: the types of plain values, aliases, merge keys, and where things stand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.document import Node, parse
from penstock.config.problems import Position


def root(text: str) -> Node:
    document = parse(text, "pipeline.yaml", {})
    assert document.problems == []
    assert document.root is not None
    return document.root


PLAIN = [
    ("1", 1),
    ("-7", -7),
    ("0x1f", 31),
    ("0o17", 15),
    ("017", 17),
    ("1.5", 1.5),
    ("1e3", 1000.0),
    (".inf", math.inf),
    ("true", True),
    ("FALSE", False),
    ("null", None),
    ("~", None),
    ("", None),
    ("yes", "yes"),
    ("no", "no"),
    ("on", "on"),
    ("12:30:45", "12:30:45"),
    ("2024-01-01", "2024-01-01"),
    ("1_000", "1_000"),
    ("127.0.0.1:8001", "127.0.0.1:8001"),
    ("!!str 5", "5"),
    ("'5'", "5"),
    ("9" * 5000, "9" * 5000),
    ("=", "="),
]


@pytest.mark.parametrize(("text", "value"), PLAIN, ids=lambda value: str(value)[:20])
def test_plain_values_have_the_types_of_yaml_1_2(text: str, value: object) -> None:
    found = root(f"key: {text}").entries["key"].value
    assert found == value
    assert type(found) is type(value)


def test_aliases_and_merge_keys() -> None:
    tree = root(
        "base: &base {a: 1, b: 2}\nmore: &more {b: 3, c: 4}\n"
        "one: {<<: *base, b: 9}\nboth: {<<: [*base, *more]}\nsame: *base\n"
    )
    assert tree.value == {
        "base": {"a": 1, "b": 2},
        "more": {"b": 3, "c": 4},
        "one": {"a": 1, "b": 9},
        "both": {"a": 1, "b": 2, "c": 4},
        "same": {"a": 1, "b": 2},
    }


def test_every_value_knows_where_it_stands() -> None:
    tree = root("a:\n  - x\n  - {b: é, c: 1}\n")
    assert tree.keys["a"] == Position(1, 1)
    assert tree.entries["a"].items[0].position == Position(2, 5)
    inner = tree.entries["a"].items[1]
    assert inner.keys["c"] == Position(3, 12)
    assert inner.entries["c"].position == Position(3, 15)


def test_windows_line_ends_do_no_harm() -> None:
    assert root("a: 1\r\nb:\r\n  - 2\r\n").value == {"a": 1, "b": [2]}


@given(st.text(max_size=200))
def test_no_text_makes_the_parser_fail(text: str) -> None:
    document = parse(text, "pipeline.yaml", {})
    assert document.root is not None or document.problems


@given(st.text(alphabet="ab:-[]{}&*!|>'\"#%@,?\n \t$<", max_size=60))
def test_no_text_of_yaml_marks_makes_the_parser_fail(text: str) -> None:
    document = parse(text, "pipeline.yaml", {})
    assert document.root is not None or document.problems
    assert all(str(problem) for problem in document.problems)
