"""A source is silent only if somebody listened."""

from __future__ import annotations

import pytest

from penstock.destinations.state import listening
from penstock.destinations.state.listening import LONGEST_GAP, Listening


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(listening.time, "monotonic", lambda: now[0])
    return now


def test_it_lasts_while_turns_are_taken(clock: list[float]) -> None:
    found = Listening()
    for _ in range(10):
        clock[0] += LONGEST_GAP
        found.take_turn()
    assert found.has_lasted(10 * LONGEST_GAP)
    assert not found.has_lasted(10 * LONGEST_GAP + 1)


def test_it_begins_anew_when_nobody_took_a_turn_for_long(clock: list[float]) -> None:
    found = Listening()
    clock[0] += LONGEST_GAP + 1
    found.take_turn()
    assert not found.has_lasted(1)


def test_an_interruption_begins_it_anew(clock: list[float]) -> None:
    found = Listening()
    clock[0] += 20
    found.interrupt()
    clock[0] += 5
    assert found.has_lasted(5)
    assert not found.has_lasted(6)


def test_it_begins_anew_when_the_clock_of_the_database_is_set_forward(clock: list[float]) -> None:
    found = Listening()
    told = []
    # As it was, a bit fast, set forward by an hour, set back, set right again by as much.
    for ahead in (1000.0, 1004.0, 4600.0, 1000.0, 1001.0, 4600.0):
        clock[0] += 20
        found.take_turn()
        told.append(found.compare_clock(clock[0] + ahead))
        assert found.has_lasted(20) is (told[-1] == 0.0)
    assert told == [0.0, 0.0, 3600.0, 0.0, 0.0, 3600.0]


def test_a_clock_that_is_set_a_little_again_and_again_is_noticed(clock: list[float]) -> None:
    found = Listening()
    told = [found.compare_clock(clock[0] + ahead) for ahead in (0.0, 4.0, 8.0)]
    assert told == [0.0, 0.0, 8.0]
