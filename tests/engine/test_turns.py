"""Batches of a route and retries of what waits at its destination take turns."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.engine.retry_lane.turns import TurnLock
from penstock.testing.waiting import eventually
from tests.engine.conflating import ROUTE, Fleet, RetriesWithoutSpark


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def test_what_waits_is_tried_though_batches_follow_each_other_at_once(fleet: Fleet) -> None:
    fleet.state.away = True
    fleet.send(("hub1", "a", 1, 0))
    fleet.deliver()
    fleet.state.away = False
    retries = RetriesWithoutSpark(fleet)
    retries.return_to_target()
    over = threading.Event()

    def batches() -> None:
        while not over.is_set():
            with retries.gate:
                over.wait(0.05)

    busy, lane = threading.Thread(target=batches), threading.Thread(target=retries.keep_retrying)
    busy.start()
    lane.start()
    try:
        eventually(lambda: fleet.versions == {"hub1/a": 1}, "the retry has its turn")
    finally:
        over.set()
        retries.end()
        busy.join(60)
        lane.join(60)


def test_a_target_that_is_dead_keeps_no_batch_from_its_turn(fleet: Fleet) -> None:
    fleet.state.away = True
    fleet.send(("hub1", "a", 1, 0))
    fleet.deliver()
    retries = RetriesWithoutSpark(fleet)
    retries.return_to_target()
    fleet.state.dead = True
    lane = threading.Thread(target=retries.keep_retrying)
    lane.start()
    try:

        def attempts() -> int:
            return fleet.opened.ledger.postponed(ROUTE)[0].attempts

        eventually(lambda: attempts() >= 2, "it is tried again and again")
        with retries.gate.within(30.0) as mine:
            assert mine
            seen = attempts()
        eventually(lambda: attempts() > seen, "and so on after a batch")
    finally:
        retries.end()
        lane.join(60)


def test_turns_come_in_the_order_in_which_they_were_asked_for() -> None:
    lock, order = TurnLock(), list[str]()

    def take(name: str) -> None:
        with lock:
            order.append(name)

    lock.acquire()
    waiting = []
    for place, name in enumerate("abc"):
        waiting.append(threading.Thread(target=take, args=(name,)))
        waiting[-1].start()
        eventually(lambda place=place: lock.waiting == place + 1, "it has asked")
    with lock.within(0.01) as mine:
        assert not mine, "one that does not wait leaves the queue"
    lock.release()
    for thread in waiting:
        thread.join(60)
    assert (order, lock.locked()) == (["a", "b", "c"], False)
