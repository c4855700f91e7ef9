"""Groups that wait, against a plain model: any batches, ticks, releases and restarts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.holding import waiting_groups
from penstock.holding.decision import Decision
from penstock.holding.item import ITEM, Items
from penstock.holding.waiting_groups import CLOSES, WaitingGroups

AT_MOST = 20
row = st.tuples(st.integers(0, 4), st.booleans())
batch = st.tuples(
    st.lists(row, max_size=10),
    st.one_of(st.none(), st.integers(-5, 15)),
    st.lists(st.integers(-5, 40), max_size=2),
    st.booleans(),
)
"""Keys, and whether each closes its group; a tick so much later than the last; releases up to so many items before the
end of the batch; whether there is a restart."""
Batch = tuple[list[tuple[int, bool]], int | None, list[int], bool]


def items(rows: list[tuple[int, bool]], order: int) -> Items:
    made = [(key, key, order + n, 7 * n, order + n, key % 2, 0, CLOSES * shut) for n, (key, shut) in enumerate(rows)]
    return np.array(made, ITEM)


class Model:
    def __init__(self) -> None:
        self.waiting: dict[int, list[int]] = {}
        self.since: dict[int, int] = {}
        """The tick from which on a group waits."""
        self.now = -1000

    def decide(self, rows: list[tuple[int, bool]], order: int, tick: int | None, releases: list[int]) -> set[int]:
        gone: set[int] = set()
        ticked = tick is not None and tick > self.now and len(self.waiting) > 0
        if ticked:
            self.now = tick or 0
            self.since = {key: self.since.get(key, self.now) for key in self.waiting}
        for n, (key, closes) in enumerate(rows):
            self.waiting.setdefault(key, []).append(order + n)
            if closes:
                gone |= self.release(key)
        for key in [key for key, since in self.since.items() if ticked and since <= self.now - AT_MOST]:
            gone |= self.release(key)
        for point in releases:
            for key in [key for key, own in self.waiting.items() if own[0] <= point]:
                gone |= self.release(key)
        return gone

    def release(self, key: int) -> set[int]:
        self.since.pop(key, None)
        return set(self.waiting.pop(key))


@pytest.fixture(autouse=True)
def tidies_up_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_groups, "LEAST_BYTES", 100)
    monkeypatch.setattr(waiting_groups, "MOST_BLOBS", 7)
    monkeypatch.setattr(waiting_groups, "ITEMS_PER_BLOB", 3)


def restored(blobs: list[bytes]) -> WaitingGroups:
    state = WaitingGroups(AT_MOST)
    for blob in blobs:
        state.apply(blob)
    return state


def after(blobs: list[bytes], decision: Decision) -> list[bytes]:
    return [*blobs[decision.change.drop :], *decision.change.append]


@given(st.lists(batch, max_size=20))
def test_every_item_goes_on_once_with_its_group(taken: list[Batch]) -> None:
    groups, model, blobs = WaitingGroups(AT_MOST), Model(), list[bytes]()
    order = waiting = now = 0
    for rows, later, back, restarts in taken:
        now += later or 0
        tick = None if later is None else now
        releases = [order + len(rows) - each for each in back]
        came = items(rows, order)
        shuffled = came[np.random.default_rng(len(came)).permutation(len(came))]
        decision = groups.decide(shuffled, [] if tick is None else [tick], releases)
        decision.check("gather", len(came))
        assert set(decision.released["order"].tolist()) == model.decide(rows, order, tick, releases)
        waiting += decision.held - decision.let_go
        assert waiting == len(groups) == sum(map(len, model.waiting.values()))
        offsets = [(key % 2, order) for key, own in model.waiting.items() for order in own]
        assert decision.holds == {p: min(o for q, o in offsets if q == p) for p, _ in offsets}
        blobs = after(blobs, decision)
        order += len(rows)
        if restarts:
            groups = restored(blobs)
            assert len(groups) == waiting


def test_a_tick_from_before_an_item_that_is_read_with_it_does_not_count_for_it() -> None:
    groups = WaitingGroups(60)
    groups.decide(items([(1, False)], 0))
    assert len(groups.decide(items([], 1), [100]).released) == 0
    # A tick that nobody has read for long, a record that has just come, and the first tick after it.
    assert groups.decide(items([(2, False)], 1), [130]).waiting == 2
    assert groups.decide(items([], 2), [200]).released["order"].tolist() == [0]
    assert groups.decide(items([], 2), [259]).waiting == 1
    assert groups.decide(items([], 2), [260]).released["order"].tolist() == [1]


def test_a_release_lets_the_oldest_groups_go_on_as_they_are() -> None:
    groups = WaitingGroups(10**9)
    groups.decide(items([(1, False), (2, False), (1, False)], 0))
    decision = groups.decide(items([(3, False), (2, False)], 3), releases=[0])
    assert sorted(decision.released["order"].tolist()) == [0, 2]
    assert (decision.let_go, decision.passed, decision.held, decision.waiting) == (2, 0, 2, 3)
    assert decision.holds == {0: 1, 1: 3}
    everything = groups.decide(items([(3, False)], 5), releases=[2, 5, 1])
    assert sorted(everything.released["order"].tolist()) == [1, 3, 4, 5]
    assert (everything.let_go, everything.passed, everything.held, everything.waiting) == (3, 1, 0, 0)


def test_a_group_goes_on_for_any_of_its_items_that_is_old_enough() -> None:
    """A source that a route reads only now may have records that are older than what waits."""
    groups = WaitingGroups(10**9)
    groups.decide(items([(1, False), (2, False)], 100))
    groups.decide(items([(1, False)], 10))
    decision = groups.decide(items([], 0), releases=[50])
    assert sorted(decision.released["order"].tolist()) == [10, 100]
    assert decision.holds == {0: 101}


def test_the_state_stays_as_large_as_what_waits() -> None:
    groups, blobs = WaitingGroups(10**9), list[bytes]()
    for batch in range(200):
        rows = [(1000 * batch + n // 2, n % 2 == 1) for n in range(1000)] + [(-1 % 2**32 + batch, False)]
        decision = groups.decide(items(rows, 2000 * batch))
        blobs = after(blobs, decision)
        assert (decision.passed, decision.held) == (1000, 1)
    assert len(groups) == 200
    assert sum(map(len, blobs)) < 4 * 200 * ITEM.itemsize
