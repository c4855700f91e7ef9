"""A target that is not as far as the ledger gets again what it lacks; one that claims to be further is not believed."""

from __future__ import annotations

import random
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.destinations.contract import TargetPosition
from penstock.engine.history.target_position import return_to_position
from penstock.engine.ledger import Act, Position, RouteState, Totals
from penstock.testing.waiting import eventually
from tests.engine.conflating import ROUTE, Fleet, RetriesWithoutSpark, group_of


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def ask(fleet: Fleet) -> None:
    opened = fleet.opened
    return_to_position(opened.ledger, opened.log, opened.plan(ROUTE), fleet.state)


def test_an_older_copy_of_the_target_gets_again_what_it_lacks(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    fleet.send(("hub1", "a", 1, 0))
    fleet.deliver()
    older = dict(fleet.state.newest)
    fleet.send(("hub1", "a", 2, 0), ("hub2", "a", 1, 0))
    fleet.deliver()
    fleet.state.newest, fleet.state.says = older, {0: TargetPosition(1, 1)}
    generation = fleet.opened.ledger.generation(ROUTE)
    ask(fleet)
    assert fleet.opened.ledger.offsets(ROUTE) == {0: Position(1, 1)}
    assert fleet.opened.ledger.generation(ROUTE) == generation + 1, "Spark begins anew"
    (act,) = fleet.opened.ledger.interventions(ROUTE)
    assert (act.act, act.who, act.start, act.end) == (Act.REWIND, "penstock", 1, 3)
    assert "goes back to offset 1 of partition 0" in caplog.text
    fleet.deliver()
    assert fleet.versions == {"hub1/a": 2, "hub2/a": 1}
    assert fleet.totals == Totals(items=5, loaded=5)


def test_an_older_copy_is_noticed_also_while_both_wait_for_the_same(fleet: Fleet) -> None:
    fleet.send(("hub1", "b", 1, 9))
    fleet.deliver()
    older = dict(fleet.state.newest)
    fleet.send(("hub2", "a", 1, 0))
    fleet.deliver()
    fleet.state.newest, fleet.state.says = older, {0: TargetPosition(needs=0, told=1)}
    ask(fleet)
    assert fleet.opened.ledger.offsets(ROUTE) == {0: Position(0, 0)}
    fleet.deliver()
    assert fleet.versions == {"hub2/a": 1}


@pytest.mark.parametrize("says", [{}, {7: TargetPosition(0, 0)}])
def test_an_empty_target_gets_everything_that_the_log_has(fleet: Fleet, says: dict[int, TargetPosition]) -> None:
    fleet.send(("hub1", "a", 1, 0), ("hub2", "a", 1, 0))
    fleet.deliver()
    fleet.state.newest, fleet.state.says = {}, says
    ask(fleet)
    fleet.deliver()
    assert fleet.versions == {"hub1/a": 1, "hub2/a": 1}


def test_a_route_that_begins_later_than_the_log_is_not_moved_by_an_empty_target(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, start=1)
    fleet.send(("hub1", "a", 1, 0))
    fleet.state.says = {}
    ask(fleet)
    assert fleet.opened.ledger.offsets(ROUTE) == {0: Position(1, 1)}


@pytest.mark.parametrize("says", [None, {0: TargetPosition(1, 2)}, {0: TargetPosition(99, 99)}])
def test_a_target_that_does_not_need_what_the_ledger_has_let_go_moves_nothing(
    fleet: Fleet, says: dict[int, TargetPosition] | None
) -> None:
    fleet.send(("hub1", "a", 1, 0), ("hub1", "b", 1, 9))
    fleet.deliver()
    fleet.state.says = says
    ask(fleet)
    assert fleet.opened.ledger.offsets(ROUTE) == {0: Position(2, 1)}
    assert fleet.opened.ledger.interventions(ROUTE) == []


def test_what_waits_and_a_batch_under_way_come_again_and_are_counted_once(fleet: Fleet) -> None:
    fleet.send(("hub1", "a", 1, 0), ("hub1", "b", 1, 2))
    fleet.deliver()
    fleet.send(("hub1", "a", 2, 0))
    assert fleet.opened.ledger.begin(ROUTE, {0: (2, 3)}) is not None
    fleet.state.newest, fleet.state.says = {}, {0: TargetPosition(0, 0)}
    ask(fleet)
    assert fleet.opened.ledger.standing(ROUTE).pending is None
    assert (fleet.opened.ledger.offsets(ROUTE), fleet.waits) == ({0: Position(0, 0)}, [])
    fleet.deliver()
    assert (fleet.versions, fleet.waits) == ({"hub1/a": 2, "hub1/b": 1}, [])
    # Of the first time: one loaded, one that waited and came again. Then three, of which one was conflated.
    assert fleet.totals == Totals(items=5, loaded=3, skipped=2)


def test_what_the_log_has_no_longer_is_told_and_the_rest_comes(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    long_name = random.Random(1).randbytes(1000).hex()
    for version in range(12):
        fleet.send((long_name, "a", version, 0))
    fleet.deliver()
    log = fleet.opened.log
    log.holds.set(ROUTE, {0: 12})
    log.apply_retention(fleet.opened.floors(), datetime.now(UTC) + timedelta(days=9))
    oldest = log.bounds(0).oldest
    assert 0 < oldest < 12
    fleet.state.newest, fleet.state.says = {}, {0: TargetPosition(0, 0)}
    ask(fleet)
    assert fleet.opened.ledger.offsets(ROUTE) == {0: Position(oldest, oldest)}
    assert f"needs offsets 0..{oldest - 1} of partition 0, and the log no longer has them" in caplog.text
    fleet.deliver()
    assert fleet.state.newest == {group_of(long_name, "a"): (11, 11)}


def test_a_target_that_cannot_be_asked_is_waited_for_and_gets_nothing_before(fleet: Fleet) -> None:
    fleet.state.away = True
    fleet.send(("hub1", "a", 1, 0))
    fleet.deliver()
    fleet.state.away, fleet.state.dead = False, True
    retries = RetriesWithoutSpark(fleet)
    fleet.state.gave.clear()
    starting = threading.Thread(target=retries.return_to_target)
    lane = threading.Thread(target=retries.keep_retrying)
    try:
        starting.start()
        lane.start()
        ledger = fleet.opened.ledger

        def state() -> RouteState | None:
            activity = ledger.activity(ROUTE)
            return None if activity is None else activity.state

        eventually(lambda: state() is RouteState.RETRYING, "it waits for the target")
        assert fleet.state.gave == []
        fleet.state.dead = False
        eventually(lambda: fleet.versions == {"hub1/a": 1}, "it gets what waited")
        starting.join(60)
        assert state() is RouteState.STARTING
    finally:
        retries.stopping.set()
        retries.end()
        starting.join(60)
        lane.join(60)
