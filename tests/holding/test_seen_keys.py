"""Duplicates by key and window, against a plain dictionary, and after any restart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.holding import seen_keys
from penstock.holding.decision import Decision
from penstock.holding.item import ITEM, Items
from penstock.holding.packed_rows import unpack_rows
from penstock.holding.seen_keys import SeenKeys

WINDOW = 10
rows = st.tuples(st.integers(0, 4), st.one_of(st.integers(0, 6), st.integers(-25, 25)))
batches = st.lists(st.tuples(st.lists(rows, max_size=10), st.booleans()), max_size=15)
"""Keys with how much later than the one before each comes, and whether there is a restart after the batch."""


@pytest.fixture(autouse=True)
def writes_anew_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_keys, "MOST_BLOBS", 5)
    monkeypatch.setattr(seen_keys, "FEW_BLOBS", 2)


def items(keyed: list[tuple[int, int]], order: int) -> Items:
    return np.array([(key, key, order + n, time, order + n, 0, 0, 0) for n, (key, time) in enumerate(keyed)], ITEM)


def restored(blobs: list[bytes]) -> SeenKeys:
    state = SeenKeys(WINDOW)
    for blob in blobs:
        state.apply(blob)
    return state


def after(blobs: list[bytes], decision: Decision) -> list[bytes]:
    return [*blobs[decision.change.drop :], *decision.change.append]


def content(blob: bytes) -> tuple[bytes, list[tuple[int, ...]]]:
    """A blob, whatever order its rows have."""
    head, packed = blob[: seen_keys._HEAD.size], blob[seen_keys._HEAD.size :]
    return head, sorted(unpack_rows([packed], seen_keys._SEEN).tolist())


@given(batches)
def test_what_was_seen_in_the_window_is_skipped_and_a_restart_changes_nothing(
    taken: list[tuple[list[tuple[int, int]], bool]],
) -> None:
    seen, undisturbed = SeenKeys(WINDOW), SeenKeys(WINDOW)
    blobs, last, time, order = list[bytes](), dict[int, int](), 0, 0
    for batch, restarts in taken:
        keyed, expected = [], []
        for key, later in batch:
            time += later
            keyed.append((key, time))
            if key not in last or abs(time - last[key]) > WINDOW:
                expected.append(order + len(keyed) - 1)
            last[key] = time
        came = items(keyed, order)
        shuffled = came[np.random.default_rng(len(came)).permutation(len(came))]
        decision, same = seen.decide(shuffled), undisturbed.decide(came, ticks=[time], releases=[order])
        decision.check("dedupe", len(came))
        assert decision.released["order"].tolist() == same.released["order"].tolist()
        assert decision.change.drop == same.change.drop
        assert [content(blob) for blob in decision.change.append] == [content(blob) for blob in same.change.append]
        # What steps by more than a window may make keys be forgotten: then more passes, never less.
        steady = all(0 <= later <= WINDOW for batch, _ in taken for _, later in batch)
        assert set(decision.released["order"].tolist()) >= set(expected)
        assert not steady or decision.released["order"].tolist() == expected
        assert decision.holds == {}
        blobs = after(blobs, decision)
        order += len(keyed)
        if restarts:
            seen = restored(blobs)
            assert len(seen) == len(undisturbed)


def test_it_keeps_no_more_than_the_window_holds() -> None:
    seen, blobs = SeenKeys(1000), list[bytes]()
    for start in range(0, 100_000, 100):
        decision = seen.decide(items([(start + n, start + n) for n in range(100)], start))
        blobs = after(blobs, decision)
        assert decision.passed == 100
    assert len(seen) <= 1300
    assert sum(map(len, blobs)) < 40_000


def test_a_clock_that_was_set_does_not_hide_records_or_duplicates_for_long() -> None:
    day = 1000 * WINDOW
    seen = SeenKeys(WINDOW)
    assert seen.decide(items([(1, 0)], 0)).passed == 1
    assert seen.decide(items([(2, day)], 1)).passed == 1
    back = [seen.decide(items([(3, 5 + n)], 2 + n)).passed for n in range(WINDOW + 1)]
    assert back == [1] + [0] * WINDOW
    assert seen.decide(items([(3, 3 * WINDOW + 6)], 50)).passed == 1


def test_a_restart_forgets_nothing_that_was_remembered_when_a_clock_was_set_back() -> None:
    seen, blobs = SeenKeys(80), list[bytes]()
    came = [[(1, 1000)], [(2, 900), (3, 1005)], [(4, 915)]]
    for order, keyed in enumerate(came):
        blobs = after(blobs, seen.decide(items(keyed, 10 * order)))
    again = SeenKeys(80)
    for blob in blobs:
        again.apply(blob)
    assert len(blobs) == 2, "the first blob is of no use any more"
    duplicate = items([(2, 910)], 30)
    assert (seen.decide(duplicate).skipped, again.decide(duplicate).skipped) == (1, 1)
