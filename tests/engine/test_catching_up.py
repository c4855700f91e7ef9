"""A table that was unavailable for a while catches up beside the batches of its route, faster than it falls behind."""

from __future__ import annotations

import subprocess
from threading import Event
from typing import Any, cast

import pytest

from penstock.engine.lost_workers import trial_process
from penstock.engine.retry_lane.turns import TurnLock
from penstock.engine.running.retries import RouteRetries
from penstock.testing.waiting import eventually
from tests.engine.test_waiting import Shop, shop

__all__ = ["shop"]


def retries_without_spark(shop: Shop) -> RouteRetries:
    """As a route has them, beside no query."""
    layout = shop.pipeline.layout
    return RouteRetries(cast("Any", None), shop.delivery, layout, TurnLock(), Event(), leave_query=lambda: None)


@pytest.fixture
def behind(shop: Shop) -> Shop:
    """Five batches wait for a table."""
    with shop.locked("orders"):
        for n in range(1, 6):
            shop.append(("orders", n), ("visits", n))
            shop.deliver()
    assert shop.waiting == {"orders": (5, 5)}
    return shop


def test_a_table_catches_up_with_one_process_for_all_that_it_waits_for(
    behind: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    start = trial_process.subprocess.Popen

    def counted(*words: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(start(*words, **options))
        return started[-1]

    monkeypatch.setattr(trial_process.subprocess, "Popen", counted)
    retries = retries_without_spark(behind)
    assert retries.lane.retry_due_tables()
    assert behind.waiting == {}
    assert behind.rows("orders") == [0, 1, 2, 3, 4, 5]
    assert len(started) == 1
    assert not retries.lane.retry_due_tables()
    eventually(lambda: started[0].poll() is not None, "the process has ended, for nothing waits any more")
