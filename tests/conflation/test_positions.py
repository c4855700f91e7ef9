"""A position is the lowest offset that is not processed; what waits is not."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from penstock.conflation.bundle import Place
from penstock.conflation.positions import Positions


def test_what_waits_holds_the_position_though_later_ones_are_processed() -> None:
    positions = Positions({0: 103}, [Place(0, 101), Place(0, 102)])
    positions.note_processed([Place(0, 102)])
    assert positions.after([]) == {0: 101}


def test_when_all_is_processed_the_position_is_behind_the_last() -> None:
    positions = Positions({0: 103}, [Place(0, 101), Place(0, 102)])
    positions.note_processed([Place(0, 101)])
    assert positions.after([]) == {0: 102}
    assert positions.after([Place(0, 102)]) == {0: 103}
    assert positions.after([]) == {0: 102}, "a look ahead changes nothing"


def test_what_waits_elsewhere_holds_it_too() -> None:
    positions = Positions({0: 55}, [Place(0, 101)])
    assert positions.after([Place(0, 101)]) == {0: 55}


def test_partitions_do_not_mix() -> None:
    positions = Positions({0: 10, 1: 20}, [Place(0, 4), Place(1, 4)])
    positions.note_processed([Place(1, 4)])
    assert positions.after([]) == {0: 4, 1: 20}


@given(st.sets(st.integers(0, 30)), st.lists(st.integers(0, 30)), st.sets(st.integers(0, 30)), st.integers(0, 31))
def test_it_is_what_a_search_through_all_offsets_finds(
    left: set[int], done: list[int], ahead: set[int], upto: int
) -> None:
    positions = Positions({0: upto}, [Place(0, offset) for offset in left])
    for offset in done:
        positions.note_processed([Place(0, offset)])
        left = left - {offset}
        assert positions.after([]) == {0: min([upto, *left])}
    assert positions.after([Place(0, offset) for offset in ahead]) == {0: min([upto, *(left - ahead)])}
