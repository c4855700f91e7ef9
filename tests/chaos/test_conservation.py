"""The promise of the README, under ``kill -9``: what got a 200 is in the warehouse exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.run import KILLS, NAMED_POINTS, chaos


@pytest.mark.timeout(3600)  # the engine starts anew a dozen times
def test_every_acknowledged_event_arrives_exactly_once_whatever_is_killed(tmp_path: Path) -> None:
    result = chaos(tmp_path, KILLS, count=6, seed=20261, settle_every=1)
    assert result.lost == set()
    assert result.doubled == set()
    assert result.unknown == set()
    assert result.last_event_arrived
    assert result.wrongly_failed == set()
    assert result.wrong_books == []
    assert result.exit_code == 0
    assert result.acknowledged > 100
    assert sum(result.struck.values()) >= len(NAMED_POINTS) + 5
