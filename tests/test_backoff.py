"""How often a person hears of something that stays as it is."""

from __future__ import annotations

from penstock.backoff import Reminder


def test_what_does_not_change_is_said_at_once_and_then_ever_more_seldom() -> None:
    reminder = Reminder(first=10, cap=60)
    said = [second for second in range(300) if reminder.is_due(second)]
    assert said == [0, 10, 30, 70, 130, 190, 250]
