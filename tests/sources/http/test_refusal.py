"""A collector refuses what comes while a route from it says that its destination fails."""

from __future__ import annotations

from pathlib import Path

from penstock.failing_targets import FailingKey, FailingTarget, tell_failing
from penstock.testing.waiting import eventually
from tests.sources.http.server import Running, collector


def status(running: Running) -> int:
    return running.post("/api/v1/event", b'{"n": 1}').status_code


def test_events_get_503_with_retry_after_until_the_destination_takes_them_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    failing = [FailingKey("session", 61.0, 9, "it answers 503")]
    why = "route export could not deliver for 61 s"
    with collector(tmp_path) as running:
        assert status(running) == 200
        tell_failing(run, "export", FailingTarget("export", ["other"], 1, failing, why, 7.5))
        tell_failing(run, "second", FailingTarget("second", ["web"], 1, failing))
        assert status(running) == 200, "another source is meant, or none"
        tell_failing(run, "export", FailingTarget("export", ["web"], 1, failing, why, 7.5))
        eventually(lambda: status(running) == 503, "it refuses", seconds=5)
        answer = running.post("/api/v1/event", b'{"n": 1}')
        assert answer.headers["retry-after"] == "8"
        assert "destination_failing" in answer.text
        assert why in answer.text
        kept = len(running.records())
        tell_failing(run, "export", None)
        eventually(lambda: status(running) == 200, "it takes events again", seconds=5)
        assert len(running.records()) == kept + 1
