"""Stopping a pipeline that runs: first it takes no more and delivers what it has, then it stops now."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from penstock.cli._support.exit_codes import Exit
from penstock.testing.waiting import HANG, eventually
from tests.cli.processes import Terminal, running, works
from tests.engine.test_engine import locked
from tests.support import plain_http
from tests.support.ports import free_port, listens

CONFIG = """\
name: shop
engine: {{drain: 10m}}
sources:
  web: {{type: http, listen: "127.0.0.1:{port}", workers: 1, tokens: [{{id: site, client_secret: demo}}]}}
routes:
  warehouse: {{from: web, to: {{type: duckdb, path: ./warehouse.duckdb, every: 100ms}}}}
"""

STARTING = """\
name: shop
sources:
  web: {{type: http, listen: "127.0.0.1:{port}", workers: 1, tokens: [{{id: site, client_secret: demo}}]}}
routes:
  warehouse: {{from: web, to: {{type: duckdb, path: ./warehouse.duckdb, every: 100ms}}}}
"""

TRACES = ("Exception", "Traceback", "\tat ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("with_jvm", [False, True])
def test_a_pipeline_with_nothing_to_deliver_ends_soon_also_while_spark_is_starting(
    tmp_path: Path, number: signal.Signals, with_jvm: bool
) -> None:
    (tmp_path / "pipeline.yaml").write_text(STARTING.format(port=free_port()))
    with running(tmp_path) as run:
        eventually(lambda: "engine: started" in run.said, "it is starting")
        if with_jvm:
            eventually(lambda: run.has("java"), "the JVM is starting")
        family = run.family()
        run.process.send_signal(number)
        assert run.process.wait(timeout=HANG) == Exit.OK
        eventually(lambda: not any(works(each) for each in family), "nothing of it is left")
    assert "engine: Spark started" not in run.said, "nobody waits for it any more"
    # Each ended by itself: one that did not stop in its time would have been killed.
    assert "source web: ended with 0" in run.said
    assert "engine: ended with 0" in run.said
    assert [line for line in run.said.splitlines() if any(mark in line for mark in TRACES)] == []


def test_what_was_acknowledged_while_spark_was_starting_is_delivered_before_the_end(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "pipeline.yaml").write_text(CONFIG.format(port=port))
    url = f"http://127.0.0.1:{port}/api/v1/event?token=demo"
    with running(tmp_path) as run:
        eventually(lambda: listens(port), "the collector listens")
        eventually(lambda: plain_http.post(url, json={"n": 1}, timeout=HANG).status_code == 200, "an event is taken")
        assert "route warehouse: started" not in run.said, "Spark is starting"
        run.interrupt()
        assert run.process.wait(timeout=HANG) == Exit.OK
    assert Terminal(tmp_path).counts("warehouse") == (1, 1, 0, 0, 0)


def test_the_first_signal_refuses_new_events_and_waits_and_the_second_ends_everything(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "pipeline.yaml").write_text(CONFIG.format(port=port))
    url = f"http://127.0.0.1:{port}/api/v1/event?token=demo"
    with locked(tmp_path / "warehouse.duckdb"), running(tmp_path) as run:
        eventually(lambda: listens(port), "the collector listens")
        eventually(lambda: plain_http.post(url, json={"n": 1}, timeout=HANG).status_code == 200, "an event is taken")
        eventually(lambda: "Trying again in" in run.said, "the destination is unavailable")
        family, engine = run.family(), run.engine()

        run.interrupt()
        eventually(lambda: not listens(port), "nobody takes events any more")
        assert "draining, up to 600 s" in run.said
        assert run.process.poll() is None
        assert works(engine)

        run.interrupt()
        assert run.process.wait(timeout=HANG) == Exit.UNFINISHED
        eventually(lambda: not any(works(each) for each in family), "nothing of it is left")
    _, asked, afterwards = run.said.partition("stopping now\n")
    assert asked
    # A stop that was asked for is no error: neither Spark's nor Python's traces.
    assert [line for line in afterwards.splitlines() if any(mark in line for mark in TRACES)] == []
    status = json.loads(Terminal(tmp_path).penstock("status", "--json").stdout)
    assert status["engine_pid"] is None
    (route,) = status["routes"]
    assert (route["in"], route["lag"]) == (0, 1)

    left = set((tmp_path / "data" / "run" / "spark").iterdir())
    assert left
    assert Terminal(tmp_path).run_once().returncode == Exit.OK
    assert not left & set((tmp_path / "data" / "run" / "spark").iterdir())
