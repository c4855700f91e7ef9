"""Where one request ends and the next begins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sessions.request_size import EventSizes, Limits, cut_request, request_bytes

Cuts = list[tuple[int, int]]


def sizes(events: list[int], threads: list[int] | None = None, of_thread: list[int] | None = None) -> EventSizes:
    kinds = [] if threads is None else [(np.array(threads, np.int64), np.array(of_thread, np.int64))]
    return EventSizes(np.array(events, np.int64), kinds)


def cuts(of: EventSizes, around: int, limits: Limits) -> Cuts:
    found: Cuts = []
    start = 0
    while start < len(of):
        end = cut_request(of, start, around, limits)
        found.append((start, end))
        start = end
    return found


ROOMY = Limits(1_000, 1_000)


@pytest.mark.parametrize(
    ("events", "around", "limits", "expected"),
    [
        ([10], 0, ROOMY, [(0, 1)]),
        ([10, 10], 0, ROOMY, [(0, 2)]),
        ([500, 500], 0, ROOMY, [(0, 2)]),
        ([500, 501], 0, ROOMY, [(0, 1), (1, 2)]),
        ([500, 500], 1, ROOMY, [(0, 1), (1, 2)]),
        ([499, 500], 1, ROOMY, [(0, 2)]),
        ([1_000], 0, ROOMY, [(0, 1)]),
        ([1_001], 0, ROOMY, [(0, 1)]),
        ([1_001, 1], 0, ROOMY, [(0, 1), (1, 2)]),
        ([1, 1_001, 1], 0, ROOMY, [(0, 1), (1, 2), (2, 3)]),
        ([100] * 10, 0, ROOMY, [(0, 10)]),
        ([100] * 11, 0, ROOMY, [(0, 10), (10, 11)]),
        ([100] * 10, 0, Limits(1_000, 500), [(0, 6), (6, 10)]),
        ([100] * 10, 0, Limits(1_000, 499), [(0, 5), (5, 10)]),
        ([600, 100], 0, Limits(1_000, 500), [(0, 1), (1, 2)]),
        ([100] * 5, 400, Limits(1_000, 500), [(0, 2), (2, 4), (4, 5)]),
        ([10] * 5, 0, Limits(1_000, 1_000, events=2), [(0, 2), (2, 4), (4, 5)]),
        ([10] * 5, 0, Limits(1_000, 1_000, events=1), [(n, n + 1) for n in range(5)]),
        ([10] * 5, 0, Limits(1_000, 1_000, events=9), [(0, 5)]),
    ],
)
def test_a_request_ends_where_the_next_event_does_not_fit(
    events: list[int], around: int, limits: Limits, expected: Cuts
) -> None:
    assert cuts(sizes(events), around, limits) == expected


@pytest.mark.parametrize(
    ("threads", "of_thread", "expected"),
    [
        ([-1, -1, -1], [], [(0, 3)]),
        ([0, 0, 0], [100], [(0, 3)]),
        ([0, 0, 0], [101], [(0, 2), (2, 3)]),
        ([0, 1, 1], [50, 50], [(0, 3)]),
        ([0, 1, 2], [50, 50, 50], [(0, 2), (2, 3)]),
        ([-1, 0, -1], [100], [(0, 3)]),
        ([2, 1, 0], [60, 50, 50], [(0, 2), (2, 3)]),
    ],
)
def test_what_events_refer_to_is_counted_once_in_each_request(
    threads: list[int], of_thread: list[int], expected: Cuts
) -> None:
    assert cuts(sizes([300, 300, 300], threads, of_thread), 0, ROOMY) == expected


@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(-1, 3)), min_size=1, max_size=60),
    st.lists(st.integers(1, 80), min_size=4, max_size=4),
    st.integers(0, 100),
    st.integers(100, 1_000),
    st.none() | st.integers(1, 10),
)
def test_every_request_is_under_the_limit_and_as_full_as_it_may_be(
    events: list[tuple[int, int]], of_thread: list[int], around: int, send_above: int, most: int | None
) -> None:
    of = sizes([size for size, _ in events], [thread for _, thread in events], of_thread)
    limits = Limits(1_000, send_above, most)
    found = cuts(of, around, limits)
    assert [start for start, _ in found] == [0, *(end for _, end in found[:-1])]
    assert found[-1][1] == len(events)
    for start, end in found:
        size = request_bytes(of, start, end, around)
        listed = {thread for _, thread in events[start:end]} - {-1}
        assert size == around + sum(size for size, _ in events[start:end]) + sum(of_thread[each] for each in listed)
        assert size <= 1_000
        is_full = end == len(events) or size > send_above or end - start == most
        assert is_full or request_bytes(of, start, end + 1, around) > 1_000
        assert end - start == 1 or request_bytes(of, start, end - 1, around) <= send_above
