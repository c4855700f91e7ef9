"""The wall clock is set while a pipeline runs: events go on to arrive within seconds of being sent."""

from __future__ import annotations

from pathlib import Path

from penstock.testing.waiting import HANG, eventually
from tests.cli.processes import Terminal, running
from tests.support import plain_http
from tests.support.clock import DAY, HOUR, SteppedClock
from tests.support.ports import free_port, listens

CONFIG = """\
name: shop
log: {{retention: {{max_age: 1h}}, segment_bytes: 1KB}}
sources:
  web: {{type: http, listen: "127.0.0.1:{port}", workers: 1, tokens: [{{id: site, client_secret: demo}}]}}
routes:
  files: {{from: web, to: {{type: file, path: ./files}}}}
"""


def test_events_arrive_whatever_the_clock_is_set_to(tmp_path: Path) -> None:
    port, clock = free_port(), SteppedClock(tmp_path)
    (tmp_path / "pipeline.yaml").write_text(CONFIG.format(port=port))
    url = f"http://127.0.0.1:{port}/api/v1/event?token=demo"
    sent = 0

    def rows() -> int:
        return sum(len(file.read_text().splitlines()) for file in (tmp_path / "files").glob("*.ndjson"))

    with running(tmp_path, clock.environment) as run:
        eventually(lambda: "route files: started" in run.said, "the route has started")
        eventually(lambda: listens(port), "the collector listens")
        for step in (0, -3 * HOUR, 2 * DAY, -2 * DAY, 3 * HOUR):
            clock.step(step)
            for _ in range(2):
                assert plain_http.post(url, json={"n": sent}, timeout=HANG).status_code == 200
                sent += 1
                eventually(lambda wanted=sent: rows() == wanted, f"event {sent} arrives after a step of {step} s")
        assert Terminal(tmp_path).json("status")["engine_pid"] == run.engine().pid
    assert "Starting again" not in run.said
