"""Keys from fields: what means the same has the same key, and nothing else has."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.holding.field_keys import FieldKeys

SECRET = bytes(range(16))
keys = FieldKeys([("user", "id"), ("n",)], SECRET)

numbers = st.one_of(
    st.integers(-(10**40), 10**40).map(str),
    st.decimals(allow_nan=False, allow_infinity=False).map(lambda n: f"{n:e}" if n else "0"),
    st.sampled_from(
        ["0", "-0", "0.0", "0e5", "1", "1.0", "10e-1", "0.1e1", "-1", "100", "1e2", "1E+2", "1e400", "2e400"]
    ),
    st.sampled_from(["9007199254740993", "9007199254740992", "9007199254740993.0", "12345678901234567.89"]),
)


def hashed(*documents: str) -> list[tuple[int, int] | None]:
    high, low, kept = keys.hash(pa.array([text.encode() for text in documents], pa.binary()))
    pairs = zip(high.tolist(), low.tolist(), strict=True)
    return [pair if has_key else None for pair, has_key in zip(pairs, kept.tolist(), strict=True)]


@given(st.lists(numbers, min_size=2, max_size=12))
def test_numbers_are_the_same_key_exactly_if_they_are_the_same_number(texts: list[str]) -> None:
    found = hashed(*(f'{{"n": {text}, "user": {{"id": "a"}}}}' for text in texts))
    for one, key in zip(texts, found, strict=True):
        for other, other_key in zip(texts, found, strict=True):
            assert (key == other_key) == (Decimal(one) == Decimal(other)), (one, other)


@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20)), min_size=2, max_size=6), st.booleans())
def test_text_is_the_same_key_exactly_if_it_is_the_same_text(pairs: list[tuple[str, str]], ascii_only: bool) -> None:
    plain = hashed(*(json.dumps({"n": n, "user": {"id": i}}, ensure_ascii=False) for n, i in pairs))
    spelled = hashed(*(json.dumps({"user": {"id": i, "x": 1}, "n": n}, ensure_ascii=ascii_only) for n, i in pairs))
    assert plain == spelled
    for pair, key in zip(pairs, plain, strict=True):
        assert [key == other for other in plain] == [pair == other for other in pairs]


@pytest.mark.parametrize(
    "document",
    ['{"n": 1}', '{"user": {"id": null}, "n": 1}', '{"user": 5, "n": 1}', "[1]", "nonsense", "", '{"user":{"id":1}}'],
)
def test_a_record_without_all_fields_has_no_key(document: str) -> None:
    assert hashed(document) == [None]


def test_the_same_values_of_other_fields_are_another_key() -> None:
    data = pa.array([b'{"a": 1, "b": 1, "c": {"a": 1}}'], pa.binary())
    fields = [[("a",)], [("b",)], [("c", "a")], [("a",), ("b",)], [("b",), ("a",)]]
    found = {FieldKeys(paths, SECRET).hash(data)[0].item() for paths in fields}
    assert len(found) == len(fields)
    assert FieldKeys([("a",)], SECRET).hash(data)[0].item() in found


def test_values_of_other_kinds_are_other_keys() -> None:
    values = ["1", '"1"', "true", '"true"', "[1]", '"[1]"', "{}", '""', "-1", "false"]
    found = hashed(*(f'{{"n": {value}, "user": {{"id": 1}}}}' for value in values))
    assert len(set(found)) == len(values)


def test_another_secret_gives_other_keys() -> None:
    data = pa.array([b'{"n": 1, "user": {"id": 2}}'], pa.binary())
    other = FieldKeys([("user", "id"), ("n",)], bytes(16))
    assert keys.hash(data)[0] != other.hash(data)[0]
