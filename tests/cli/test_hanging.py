"""Something hangs while a pipeline runs: the others go on, it is seen, and what hangs is started anew by itself."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import psutil

from penstock.testing.waiting import HANG, eventually
from tests.cli.processes import Run, Terminal, running
from tests.engine.deadly import write_steps
from tests.support import plain_http
from tests.support.ports import free_port, listens

CONFIG = """\
name: shop
sources:
  web: {{type: http, listen: "127.0.0.1:{port}", workers: 2, tokens: [{{id: site, client_secret: demo}}]}}
routes:
  hanging:
    from: web
    step_timeout: 1h
    steps: [python: {{file: steps.py, function: treat}}]
    to: {{type: file, path: ./hanging}}
  healthy: {{from: web, to: {{type: file, path: ./healthy}}}}
"""


def delivered(folder: Path) -> list[int]:
    lines = [line for file in folder.glob("*.ndjson") for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["n"] for line in lines)


def jvm(run: Run) -> psutil.Process:
    (found,) = (each for each in run.engine().children(recursive=True) if each.name() == "java")
    return found


def test_a_step_that_hangs_and_a_jvm_that_is_stopped_hold_up_nobody_for_long(tmp_path: Path) -> None:
    port = free_port()
    write_steps(tmp_path)
    (tmp_path / "pipeline.yaml").write_text(CONFIG.format(port=port))
    url = f"http://127.0.0.1:{port}/api/v1/event?token=demo"
    healthy = tmp_path / "healthy"
    sent = 0

    def send(does: str = "") -> int:
        nonlocal sent
        assert plain_http.post(url, json={"n": sent, "do": does}, timeout=HANG).status_code == 200
        sent += 1
        return sent

    with running(tmp_path) as run:
        eventually(lambda: "route healthy: started" in run.said, "the route has started")
        eventually(lambda: listens(port), "the collector listens")
        for _ in range(8):  # over both workers, so that every task of the batch has one
            send("hang")
        eventually(lambda: "hanging" in Terminal(tmp_path).json("status")["still_seconds"], "status says that it hangs")
        for _ in range(8):
            wanted = send()
            eventually(lambda wanted=wanted: len(delivered(healthy)) == wanted, "the healthy route goes on")

        jvm(run).send_signal(signal.SIGSTOP)
        wanted = send()
        eventually(lambda: (Terminal(tmp_path).json("status")["engine_silent_seconds"] or 0) > 0, "the silence is seen")
        eventually(lambda: len(delivered(healthy)) == wanted, "it has arrived")
    assert delivered(healthy) == list(range(sent))
