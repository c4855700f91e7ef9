"""The promise of steps that remember or keep back, under ``kill -9``: nothing lost or doubled, and the books right."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.hazards import Kill
from tests.chaos.project import ROUTE
from tests.chaos.running import PYTHON_WORKER
from tests.chaos.waiting.expected import Logged, expect
from tests.chaos.waiting.project import ORDERS, TIMED, UNIQUE
from tests.chaos.waiting.promises import broken_promises
from tests.chaos.waiting.run import chaos
from tests.chaos.waiting.shopper import Event, Shopper


@pytest.mark.timeout(1200)  # the engine starts three times, on whatever machine this is
def test_what_waits_is_neither_lost_nor_doubled_whatever_is_killed(tmp_path: Path) -> None:
    # What waits for a time takes its time: tests/engine/stateful has that.
    routes, points = (ROUTE, UNIQUE, ORDERS), ("route.before_ledger_commit@4",)
    result = chaos(tmp_path, [Kill(PYTHON_WORKER)], count=1, seed=20263, settle_every=1, points=points, routes=routes)
    assert result.wrong == []
    assert list(result.exit_codes) == [0, 0]
    assert result.struck.total() == 2
    assert min(result.repeated, result.waiting) > 20


EVENTS = {
    "a": Event("red", "first", closes=False),
    "b": Event("red", "second", closes=False),
    "c": Event("blue", "first", closes=True),
    "d": Event("green", "first", closes=False),
}
RIGHT = {ROUTE: "abcd", UNIQUE: "acd", ORDERS: "ac", TIMED: "abcd"}


def test_what_must_be_there_is_told_by_the_order_of_the_log() -> None:
    logged = sorted([Logged(7, 1, 0, "a"), Logged(9, 0, 5, "b"), Logged(9, 1, 1, "c"), Logged(12, 0, 6, "d")])
    found = expect(logged, EVENTS)
    assert found.rows == {route: set(rows) for route, rows in RIGHT.items()}
    assert [each.event_id for each in found.waiting] == ["b", "d"]
    assert found.holds == {0: 5, 1: 1}


def test_an_append_that_is_found_later_counts_from_when_it_is_read() -> None:
    late, before, close = Logged(3, 1, 0, "a"), Logged(9, 0, 5, "b"), Logged(12, 0, 6, "c")
    found = expect([late, before, close], EVENTS, {UNIQUE: [before, close, late], ORDERS: [before, close, late]})
    assert found.rows[UNIQUE] == {"b", "c"}
    assert [each.event_id for each in found.waiting] == ["a", "b"]


@pytest.mark.parametrize(
    ("route", "rows", "broken"),
    [
        (ROUTE, "abcd", []),
        (ROUTE, "acd", ["an acknowledged event is in the plain table"]),
        (TIMED, "abc", ["an acknowledged event goes on after a while"]),
        (UNIQUE, "bcd", ["of a key what was acknowledged first is there"]),
        (UNIQUE, "ac", ["a key is there once"]),
        (UNIQUE, "aacd", ["a key is there once"]),
        (ORDERS, "c", ["an event is there if its order was closed after it"]),
        (ORDERS, "acd", ["an event is not there if its order is open"]),
        (ORDERS, "abc", ["an event is not there if its order is open"]),
    ],
)
def test_a_broken_promise_is_seen_without_the_log(route: str, rows: str, broken: list[str]) -> None:
    shopper = Shopper(0, events=EVENTS)
    for moment, event_id in enumerate(EVENTS):
        shopper.sent[event_id], shopper.acknowledged[event_id] = 2 * moment, 2 * moment + 1
    found = {name: Counter(rows if name == route else right) for name, right in RIGHT.items()}
    assert [promise for promise, _ in broken_promises(shopper, found)] == broken


def test_what_got_no_answer_may_be_there_or_not() -> None:
    shopper = Shopper(0, events=EVENTS)
    for moment, event_id in enumerate(EVENTS):
        shopper.sent[event_id] = moment
    shopper.acknowledged["b"] = 9
    nothing = {route: Counter[str]() for route in RIGHT}
    for event_ids in ("b", "ab", "abcd"):
        rows = {**nothing, ROUTE: Counter(event_ids), TIMED: Counter(event_ids), UNIQUE: Counter("b")}
        assert not list(broken_promises(shopper, rows))
        assert not list(broken_promises(shopper, {**rows, UNIQUE: Counter("a")}))
