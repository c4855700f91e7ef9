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
