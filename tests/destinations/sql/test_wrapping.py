"""JSON that comes back from an engine's own type as it was, or is not given to it."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.destinations.sql.load.wrapped_json import split_text, wrap_lossy_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("text", "is_wrapped"),
    [
        (None, False),
        ("{}", False),
        ('{"a":1}', False),
        ('{"a":-9223372036854775808}', False),
        ('{"a":9223372036854775807}', False),
        ('{"a":9223372036854775809}', True),
        ('{"a":12345678901234567890123}', True),
        ('{"a":1e400}', True),
        ('{"a":1e3}', False),
        ('{"a":0.1234567890123456789}', True),
        ('{"a":0.1000000000000000000}', False),
        ('{"a":"12345678901234567890123"}', False),
        ('{"a":[[{"b":1e400}]]}', True),
        ('{"a":' + "[" * 100_000 + "1e3" + "]" * 100_000 + "}", True),
    ],
)
def test_only_what_would_change_is_wrapped(text: str | None, is_wrapped: bool) -> None:
    (kept,) = wrap_lossy_json(pa.array([text], pa.string())).to_pylist()
    assert kept == (json.dumps({"": text}, separators=(",", ":")) if is_wrapped else text)


@pytest.mark.parametrize("text", ['{"a":"xxxxxxxxx"}', '{"xxxxxxxxx":1}', '{"a":["xx",{"b":"üüüüü"}]}'])
def test_a_string_that_is_too_long_is_cut(text: str) -> None:
    (kept,) = wrap_lossy_json(pa.array([text]), 8).to_pylist()
    cut = json.loads(kept)[""]
    assert "".join(cut) == text
    assert max(len(piece.encode()) for piece in cut) <= 8


@given(st.dictionaries(st.text(max_size=5), VALUES), st.integers(4, 40) | st.none())
def test_nothing_is_lost_whatever_the_value(value: dict[str, Any], most: int | None) -> None:
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
    (kept,) = wrap_lossy_json(pa.array([text]), most).to_pylist()
    found = json.loads(kept)
    if kept != text:
        found = json.loads("".join(found[""]))
    assert found == json.loads(text)


@given(st.text(), st.integers(4, 20))
def test_pieces_are_whole_characters_and_join_to_the_text(text: str, most: int) -> None:
    found = split_text(text, most)
    assert "".join(found) == text
    assert all(0 < len(piece.encode()) <= most for piece in found)
