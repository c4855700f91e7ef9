"""Objects are merged in their texts: what comes of it is what merging their values gives, and no byte else changes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sources.http.body.json_merge import Filler, Tree, filled, overlaid, without
from penstock.sources.json_text import NotJson
from tests.sources.test_jsontext import STYLES, text_of

KEYS = st.sampled_from(["a", "b", "é", "\ud800", 'q"\\'])
OBJECTS = st.recursive(
    st.dictionaries(KEYS, st.integers() | st.text(max_size=3) | st.none(), max_size=3),
    lambda inner: st.dictionaries(KEYS, inner | st.integers(), max_size=3),
    max_leaves=8,
)
TREES = st.recursive(
    st.dictionaries(KEYS, st.text(max_size=3), max_size=3),
    lambda inner: st.dictionaries(KEYS, inner | st.text(max_size=3), min_size=1, max_size=3),
    max_leaves=6,
)


def merged(weak: object, strong: object) -> object:
    """The slow reference: both objects, the strong one's values first."""
    if not isinstance(weak, dict) or not isinstance(strong, dict):
        return strong
    shared = {key: merged(weak[key], strong[key]) for key in weak.keys() & strong.keys()}
    return {**weak, **strong, **shared}


@given(OBJECTS, OBJECTS, STYLES)
def test_filling_gives_what_is_lacking(
    event: dict[str, object], more: dict[str, object], style: tuple[str, str]
) -> None:
    text = filled(text_of(event, style, True), event, Filler.of(text_of(more, style, True)))  # type: ignore[arg-type]
    assert json.loads(text) == merged(more, event)
    keys = [key for key, _ in json.loads(text, object_pairs_hook=list)]
    assert len(keys) == len(set(keys))


@given(OBJECTS, TREES, STYLES)
def test_what_is_put_over_an_object_wins(event: dict[str, object], over: Tree, style: tuple[str, str]) -> None:
    assert json.loads(overlaid(text_of(event, style, True), over)) == merged(event, over)


@given(OBJECTS, KEYS, STYLES)
def test_a_member_can_be_left_out(event: dict[str, object], key: str, style: tuple[str, str]) -> None:
    expected = {name: value for name, value in event.items() if name != key}
    assert json.loads(without(text_of(event, style, True), key)) == expected


@pytest.mark.parametrize(
    ("event", "over", "expected"),
    [
        (b'{ "a" : 2.50 , "b":1e400}', {"c": "x"}, b'{"a" : 2.50,"b":1e400,"c":"x"}'),
        (b'{"a":{"x":2.50,"y":0}}', {"a": {"y": "1"}}, b'{"a":{"x":2.50,"y":"1"}}'),
        (b'{"a":1,"a":{"x":1}}', {"a": {"y": "2"}}, b'{"a":{"x":1,"y":"2"}}'),
        (b'{"a":5}', {"a": {"b": "c"}}, b'{"a":{"b":"c"}}'),
        (b'{"a":{"b":1}}', {"a": "c"}, b'{"a":"c"}'),
        (b"{}", {"a": "\ud800\x00"}, b'{"a":"\\ud800\\u0000"}'),
    ],
)
def test_the_rest_stays_as_it_was_written(event: bytes, over: Tree, expected: bytes) -> None:
    assert overlaid(event, over) == expected


def test_sharing_too_many_levels_is_refused() -> None:
    deep = b'{"a":' * 100 + b"{}" + b"}" * 100
    with pytest.raises(NotJson, match="64 levels"):
        filled(deep, json.loads(deep), Filler.of(deep))
