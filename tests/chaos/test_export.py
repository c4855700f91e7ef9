"""The promise of session export under ``kill -9`` and every fault of an API."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.export import export_under_kills
from tests.chaos.export_outage import catch_up, delays_beside


@pytest.mark.timeout(1200)  # the engine starts twice, on whatever machine this is
def test_events_arrive_in_order_and_only_what_was_in_flight_comes_again(tmp_path: Path) -> None:
    result = export_under_kills(tmp_path, events=2_000, sessions=80, kills=1)
    assert result.wrong == []
    assert result.events == 2_001
    assert result.cut_bodies


def test_what_waited_while_the_api_was_away_arrives_in_order(tmp_path: Path) -> None:
    found = catch_up(tmp_path, sessions=20, batches=10, events=3)
    assert found.wrong == ()
    assert found.waited == 20 * 10 * 3


def test_delays_beside_a_failing_session_can_be_measured(tmp_path: Path) -> None:
    assert set(delays_beside(tmp_path, sessions=5, rounds=1)) == {"all succeed", "one fails", "one hangs"}
