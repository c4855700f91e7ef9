"""Cutting a batch: whatever the cuts, every offset is in exactly one piece, and pieces follow each other."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.delivery.batch_pieces import (
    Piece,
    Place,
    Range,
    Ranges,
    halves,
    joined,
    offset_count,
    plan_pieces,
    remaining,
    rest_after,
    split_around,
    starts_with,
)

offsets = st.integers(0, 30)
stretch = st.tuples(offsets, st.integers(1, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))
ranges_of = st.dictionaries(st.integers(0, 3), stretch, min_size=1, max_size=3)


@dataclass(frozen=True)
class Mixed:
    """An order in which partitions take turns as ``seed`` says; in each, offsets ascend."""

    seed: int

    def rank(self, place: Place) -> tuple[int, int, int]:
        partition, offset = place
        stamp = sum(1 + random.Random(f"{self.seed}{partition}{step}").randrange(4) for step in range(offset // 2))
        return stamp, partition, offset

    def before(self, ranges: Ranges, place: Place) -> dict[int, Range]:
        return self._cut(ranges, [other for other in places(ranges) if self.rank(other) < self.rank(place)])

    def first(self, ranges: Ranges, records: int) -> dict[int, Range]:
        return self._cut(ranges, sorted(places(ranges), key=self.rank)[:records])

    def _cut(self, ranges: Ranges, chosen: list[Place]) -> dict[int, Range]:
        ends = {p: max(offset for q, offset in chosen if q == p) + 1 for p, _ in chosen}
        return {p: (ranges[p][0], end) for p, end in sorted(ends.items())}


orders = st.integers(0, 99).map(Mixed)


def places(ranges: Ranges) -> list[tuple[int, int]]:
    return [(p, offset) for p, (start, end) in sorted(ranges.items()) for offset in range(start, end)]


def follow_each_other(ranges: Ranges, pieces: Iterable[Piece]) -> None:
    stands = {p: start for p, (start, _) in ranges.items()}
    for piece in pieces:
        assert piece.ranges
        for p, (start, end) in piece.ranges.items():
            assert stands[p] == start < end
            stands[p] = end
    assert stands == {p: end for p, (_, end) in ranges.items()}


@given(ranges_of, orders)
def test_halves_are_the_whole_and_each_has_something(ranges: Ranges, order: Mixed) -> None:
    first, second = halves(ranges, offset_count(ranges), order)
    follow_each_other(ranges, [Piece(half) for half in (first, second) if half])
    assert abs(offset_count(first) - offset_count(second)) <= 1
    if offset_count(ranges) > 1:
        assert first
        assert second
        assert max(map(order.rank, places(first))) < min(map(order.rank, places(second)))


@given(ranges_of, orders, st.data())
def test_what_is_around_a_record_is_before_it_or_behind_it(ranges: Ranges, order: Mixed, data: st.DataObject) -> None:
    place = data.draw(st.sampled_from(places(ranges)))
    pieces = split_around(ranges, place, order)
    follow_each_other(ranges, pieces)
    (at,) = [number for number, piece in enumerate(pieces) if places(piece.ranges) == [place]]
    assert all(order.rank(other) < order.rank(place) for piece in pieces[:at] for other in places(piece.ranges))
    assert all(order.rank(other) > order.rank(place) for piece in pieces[at + 1 :] for other in places(piece.ranges))


@given(
    ranges_of,
    orders,
    st.dictionaries(st.integers(0, 3), st.lists(stretch, max_size=3)),
    st.none() | st.tuples(st.integers(0, 3), offsets),
    st.data(),
)
def test_a_course_covers_everything_once_and_passes_over_what_was_acknowledged(
    ranges: Ranges,
    order: Mixed,
    acknowledged: dict[int, list[tuple[int, int]]],
    stopped_at: tuple[int, int] | None,
    data: st.DataObject,
) -> None:
    begun = None
    if data.draw(st.booleans()):
        begun = {p: (start, data.draw(st.integers(start + 1, end))) for p, (start, end) in ranges.items()}
        assert starts_with(ranges, begun)
    pieces = plan_pieces(ranges, order, begun, acknowledged, stopped_at)
    follow_each_other(ranges, pieces)
    rest = ranges
    if begun is not None:
        assert pieces[0] == Piece(begun, again=True)
        pieces, rest = pieces[1:], rest_after(ranges, begun)
    done = {(p, o) for p, stretches in acknowledged.items() for start, end in stretches for o in range(start, end)}
    passed = {place for piece in pieces if piece.acknowledged for place in places(piece.ranges)}
    assert passed == done & set(places(rest))
    for piece in pieces:
        careful = stopped_at is not None and any(
            p == stopped_at[0] and start <= stopped_at[1] for p, (start, _) in piece.ranges.items()
        )
        if careful and not piece.acknowledged:
            assert offset_count(piece.ranges) == 1
    delivered = [list(map(order.rank, places(piece.ranges))) for piece in pieces if not piece.acknowledged]
    assert all(max(earlier) < min(later) for earlier, later in itertools.pairwise(delivered))


@pytest.mark.parametrize(
    ("ranges", "committed", "left"),
    [
        ({0: (0, 10)}, {}, {0: (0, 10)}),
        ({0: (0, 10)}, {0: 4}, {0: (4, 10)}),
        ({0: (0, 10), 1: (5, 6)}, {0: 10, 1: 5}, {1: (5, 6)}),
        ({0: (5, 10)}, {0: 3}, {0: (5, 10)}),
        ({0: (0, 10)}, {0: 99}, {}),
    ],
)
def test_what_is_left_begins_where_the_route_stands(ranges: Ranges, committed: dict[int, int], left: Ranges) -> None:
    assert remaining(ranges, committed) == left


@given(st.lists(stretch))
def test_joined_stretches_do_not_touch_and_have_the_same_offsets(stretches: list[tuple[int, int]]) -> None:
    together = joined(stretches)
    assert {o for a, b in together for o in range(a, b)} == {o for a, b in stretches for o in range(a, b)}
    assert all(end < start for (_, end), (start, _) in itertools.pairwise(together))


def test_nothing_special_is_one_piece() -> None:
    assert plan_pieces({0: (3, 9), 1: (0, 2)}, Mixed(1)) == [Piece({0: (3, 9), 1: (0, 2)})]


def test_the_record_that_a_route_stopped_at_comes_alone() -> None:
    order = Mixed(3)
    before = order.before({0: (6, 20), 1: (0, 4)}, (0, 6))
    assert before == {1: (0, 4)}
    pieces = plan_pieces({0: (6, 20), 1: (0, 4)}, order, stopped_at=(0, 6))
    assert pieces == [Piece({1: (0, 4)}), Piece({0: (6, 7)}), Piece({0: (7, 20)})]
