"""The promise of mirrors, under ``kill -9`` and restarts of both servers: they end equal to their source."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.mirror.run import chaos
from tests.chaos.mirror.stage import ROLES


@pytest.mark.timeout(1200)  # the engine starts anew four times, on whatever machine this is
def test_mirrors_are_equal_to_their_source_whatever_is_killed(tmp_path: Path) -> None:
    result = chaos(tmp_path, seconds=20, seed=20262, rate=80, once_each=True)
    assert result.faults() == []
    assert set(result.kills) == set(ROLES)
    assert result.transactions > 100
    assert result.records > sum(result.rows.values())
