"""Column names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.flatten.column_naming import column_name

KEYS = st.lists(st.text(max_size=30), min_size=1, max_size=5).map(tuple)


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        (("UserID",), "userid"),
        (("a.b-c d/e",), "a_b_c_d_e"),
        (("İx",), "ix"),
        (("\u212a",), "k"),
        (("ſ",), "s"),
        (("ß",), "_"),
        (("größe",), "gr__e"),
        (("日本",), "__"),
        (("😀",), "_"),
        (("",), "_unnamed"),
        (("a", ""), "a__unnamed"),
        (("a", "b", "c"), "a_b_c"),
        (("eventn_ctx", "User", "Id"), "eventn_ctx_user_id"),
        (("1st",), "1st"),
        (("a\0b\n",), "a_b_"),
    ],
)
def test_a_path_becomes_a_name(keys: tuple[str, ...], name: str) -> None:
    assert column_name(keys) == name


@given(KEYS, st.integers(9, 80))
def test_any_path_has_a_name_that_fits(keys: tuple[str, ...], max_name: int) -> None:
    name = column_name(keys, max_name)
    assert re.fullmatch(r"[a-z0-9_]+", name)
    assert len(name) <= max_name
    assert len(column_name(keys)) > max_name or name == column_name(keys)


def test_long_names_that_begin_alike_stay_apart() -> None:
    one, other = column_name(("x" * 80, "a"), 63), column_name(("x" * 80, "b"), 63)
    assert one != other
    assert len(one) == len(other) == 63
    assert one[:54] == other[:54] == "x" * 54
    assert re.fullmatch(r"_[0-9a-f]{8}", one[54:])


def test_a_name_is_cut_by_its_whole_path_not_by_its_name() -> None:
    assert column_name(("X" * 80,), 63) != column_name(("x" * 80,), 63)
    assert column_name(("x" * 40, "y" * 40), 63) != column_name(("x" * 40 + "_" + "y" * 40,), 63)


def test_a_name_comes_out_the_same_for_ever() -> None:
    assert column_name(("x" * 80, "Y"), 20) == "xxxxxxxxxxx_b4e40ff5"


def test_no_room_for_a_hash_is_refused() -> None:
    with pytest.raises(ValueError, match="8 characters"):
        column_name(("a" * 20,), 8)
