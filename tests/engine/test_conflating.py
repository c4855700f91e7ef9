"""What waits at a destination that conflates: the newest of everything is written once, when it can be."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from penstock import faults
from penstock.engine.ledger import QueuedGroup, Totals
from penstock.engine.operate.status import route_status
from penstock.engine.retry_lane import choose_groups as choosing
from penstock.engine.retry_lane.choose_groups import choose_groups
from tests.engine.conflating import ROUTE, Fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def test_of_a_long_outage_only_the_newest_is_written_once(fleet: Fleet) -> None:
    fleet.state.away = True
    for version in range(5):
        fleet.send(*((source, "a", version, 0) for source in ("hub1", "hub2", "hub3")))
        fleet.deliver()
        assert len(fleet.waits) == 3
    fleet.retry()
    assert fleet.totals == Totals(items=15, skipped=12, waiting=3)
    assert fleet.opened.ledger.account(ROUTE).skipped_by == {"conflated": 12}
    assert fleet.hold == 12, "the log is let go of what nobody needs"
    status = route_status(fleet.opened, ROUTE)
    assert (status.postponed, status.adds_up) == (3, True)
    fleet.state.away = False
    fleet.state.gave.clear()
    fleet.retry()
    assert fleet.versions == {"hub1/a": 4, "hub2/a": 4, "hub3/a": 4}
    assert (len(fleet.state.gave), fleet.state.written.total()) == (1, 3), "all that is due, together"
    assert fleet.totals == Totals(items=15, loaded=3, skipped=12)
    assert fleet.hold == 15


def test_what_is_older_than_what_waits_is_conflated_away_and_waits_not(fleet: Fleet) -> None:
    fleet.state.away = True
    fleet.send(("hub1", "a", 7, 0))
    fleet.deliver()
    fleet.send(("hub1", "a", 6, 0), ("hub1", "a", 7, 0))
    fleet.deliver()
    assert (fleet.waits, fleet.totals) == ([("hub1/a", "7")], Totals(items=3, skipped=2, waiting=1))


def test_what_waits_for_another_is_tried_at_once_when_that_is_written(fleet: Fleet) -> None:
    fleet.send(("hub1", "b", 1, 2), ("hub2", "b", 1, 2))
    fleet.deliver()
    fleet.send(("hub1", "a", 1, 0))
    fleet.deliver()
    fleet.retry()
    assert fleet.waits == [("hub1/b", "1"), ("hub2/b", "1")]
    delivery = fleet.delivery
    assert not delivery.ledger.is_postponed_due(ROUTE)
    fleet.send(("hub1", "a", 2, 0))
    fleet.deliver()
    # By a process that knows nothing but the ledger.
    fleet.retry()
    assert fleet.versions == {"hub1/a": 2, "hub1/b": 1}
    assert fleet.waits == [("hub2/b", "1")]


def test_a_retry_wakes_what_waits_for_what_it_has_written(fleet: Fleet) -> None:
    fleet.send(("hub1", "b", 1, 2))
    fleet.deliver()
    fleet.state.away = True
    fleet.send(("hub1", "a", 2, 0))
    fleet.deliver()
    fleet.state.away = False
    fleet.retry()
    assert (fleet.versions, fleet.waits) == ({"hub1/a": 2, "hub1/b": 1}, [])


def test_the_lane_is_told_when_something_is_woken(fleet: Fleet) -> None:
    fleet.send(("hub1", "b", 1, 1))
    fleet.deliver()
    fleet.send(("hub2", "a", 1, 0))
    assert not fleet.deliver().retry_wanted.is_set()
    fleet.send(("hub1", "a", 1, 0))
    assert fleet.deliver().retry_wanted.is_set()


def test_what_a_begun_retry_has_is_not_superseded_and_comes_again_to_be_conflated(fleet: Fleet) -> None:
    fleet.state.away = True
    fleet.send(("hub1", "a", 1, 0))
    fleet.deliver()
    ledger = fleet.opened.ledger
    ledger.begin_retry(ROUTE, [group.id for group in ledger.postponed(ROUTE)])
    fleet.send(("hub1", "a", 2, 0))
    fleet.deliver()
    assert fleet.waits == [("hub1/a", "1"), ("hub1/a", "2")]
    fleet.state.away = False
    fleet.retry()
    assert (dict(fleet.state.written), fleet.waits) == ({("hub1\x1fa", 2): 1}, [])
    assert fleet.totals == Totals(items=2, loaded=1, skipped=1)


@pytest.mark.parametrize(
    "point",
    [
        "route.destination_done", "route.before_ledger_commit", "route.ledger_committed", "postponed.begun",
        "postponed.destination_done", "postponed.before_ledger_commit",
    ],
)  # fmt: skip
def test_killed_at_any_point_the_newest_is_written_once_and_what_waits_is_woken(
    fleet: Fleet, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.send(("hub1", "b", 1, 2), ("hub2", "a", 1, 0))
    fleet.state.away = True
    fleet.deliver()
    fleet.retry()
    fleet.state.away = False
    fleet.send(("hub1", "a", 2, 0), ("hub2", "a", 2, 0))
    with monkeypatch.context() as patched:
        patched.setattr(faults, "_armed", faults.parse(f"{point}=raise"))
        with suppress(faults.InjectedFault):
            fleet.deliver()
            fleet.retry()
            raise AssertionError("it was killed")
    fleet.deliver()
    fleet.retry()
    assert fleet.versions == {"hub1/a": 2, "hub1/b": 1, "hub2/a": 2}
    assert max(fleet.state.written.values()) == 1
    assert fleet.totals == Totals(items=4, loaded=3, skipped=1)
    assert fleet.hold == 4


def test_a_destination_that_is_dead_is_asked_again_with_the_same(fleet: Fleet) -> None:
    fleet.state.away = True
    fleet.send(("hub1", "a", 1, 0))
    fleet.deliver()
    fleet.state.away, fleet.state.dead = False, True
    fleet.retry()
    fleet.retry()
    (group,) = fleet.opened.ledger.postponed(ROUTE)
    assert (group.attempts, group.number, group.reason) == (2, 2, "PEN-TST-001: away.")
    fleet.state.dead, fleet.state.away = False, True
    fleet.send(("hub1", "a", 2, 0))
    fleet.deliver()
    assert fleet.waits == [("hub1/a", "1"), ("hub1/a", "2")]
    fleet.state.away = False
    fleet.state.gave.clear()
    fleet.retry()
    assert (fleet.versions, fleet.waits, len(fleet.state.gave)) == ({"hub1/a": 2}, [], 2)


def queued(number: int, name: str, due: bool = True, begun: int | None = None, rows: int = 1) -> QueuedGroup:
    return QueuedGroup(number, name, rows, begun, due)


@pytest.mark.parametrize(
    ("queue", "put_off", "together", "one_by_one"),
    [
        ([queued(1, "x"), queued(2, "x"), queued(3, "y")], (), [1, 2, 3], [1, 2, 3]),
        ([queued(1, "x", due=False), queued(2, "x"), queued(3, "y")], (), [1, 2, 3], [3]),
        ([queued(1, "x", due=False), queued(2, "x", due=False)], (), [], []),
        ([queued(1, "x"), queued(2, "y", begun=7), queued(3, "z", begun=7, due=False)], (), [2, 3], [2, 3]),
        ([queued(1, "x", begun=7), queued(2, "x"), queued(3, "y")], (1,), [3], [3]),
        ([queued(1, "x"), queued(2, "x"), queued(3, "y")], (1,), [3], [3]),
        ([queued(1, "x"), queued(2, ""), queued(3, "")], (), [2], [2]),
        ([queued(1, "h\x1fa", rows=60), queued(2, "i\x1fa", rows=60), queued(3, "h\x1fb")], (), [1, 3], [1, 3]),
        ([queued(1, "h\x1fa", rows=90), queued(2, "h\x1fb", rows=90), queued(3, "i\x1fb")], (), [1, 2], [1, 3]),
    ],
    ids=[
        "all of a name", "one due is enough", "nothing due", "all that was begun", "not beside what was begun",
        "not beside what was just left", "a refused batch alone", "whole sources", "one source is never cut",
    ],
)  # fmt: skip
def test_which_groups_are_tried_together(
    queue: list[QueuedGroup],
    put_off: tuple[int, ...],
    together: list[int],
    one_by_one: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choosing, "MOST_ITEMS", 100)
    monkeypatch.setattr(choosing, "MOST_ITEMS_IN_TURN", 100)
    assert [group.id for group in choose_groups(queue, put_off, conflates=True)] == together
    assert [group.id for group in choose_groups(queue, put_off, conflates=False)] == one_by_one
