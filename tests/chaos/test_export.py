"""The promise of session export under ``kill -9`` and every fault of an API."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.export import export_under_kills


@pytest.mark.timeout(1200)  # the engine starts twice, on whatever machine this is
def test_events_arrive_in_order_and_only_what_was_in_flight_comes_again(tmp_path: Path) -> None:
    result = export_under_kills(tmp_path, events=2_000, sessions=80, kills=1)
    assert result.wrong == []
    assert result.events == 2_001
    assert result.cut_bodies
