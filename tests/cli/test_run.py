"""``penstock run``, for real: processes, Spark, DuckDB."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import httpx

from tests.cli.projects import Project, penstock
from tests.support.ports import free_port, listens
from tests.support.waiting import eventually

COMMAND = [sys.executable, "-m", "penstock.cli.main"]


def test_a_new_project_runs_to_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    assert penstock("init", str(folder)).code == 0
    ran = subprocess.run([*COMMAND, "run", "--once", "--json"], cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    started, ended = map(json.loads, ran.stdout.splitlines())
    assert (started["event"], started["name"], started["once"]) == ("started", "shop", True)
    (route,) = ended["routes"]
    counts = {name: route[name] for name in ("in", "loaded", "skipped", "failed", "waiting", "adds_up", "lag")}
    assert counts == {"in": 20, "loaded": 17, "skipped": 2, "failed": 1, "waiting": 0, "adds_up": True, "lag": 0}
    with duckdb.connect(folder / "data" / "warehouse.duckdb", read_only=True) as warehouse:
        sold = warehouse.execute("SELECT count(*), sum(price), min(user_email) FROM purchase").fetchone()
        assert sold is not None
        assert (sold[0], sold[2]) == (6, "ada@example.com")
        assert warehouse.execute("SELECT count(*) FROM pageview").fetchone() == (10,)

    project = Project(folder)
    (failed,) = project.penstock("failed", "list", "--json").out.splitlines()
    assert json.loads(failed)["record"]["data"] == '{"event_type": "purchase", "item": "mug", "price": 12.5'


def test_ctrl_c_drains_and_ends_with_nothing_left(fresh: Project) -> None:
    port = free_port()
    source = f"{{type: http, listen: '127.0.0.1:{port}', workers: 1, tokens: [{{id: site, client_secret: demo}}]}}"
    fresh.config.write_text(
        f"name: shop\nsources:\n  web: {source}\nroutes:\n  out: {{from: web, to: {{type: file, path: ./out}}}}\n"
    )
    with (fresh.folder / "stderr").open("w") as log:
        running = subprocess.Popen([*COMMAND, "run"], cwd=fresh.folder, stderr=log, stdout=subprocess.PIPE, text=True)
    try:
        eventually(lambda: listens(port), "the collector listens", seconds=60)
        url = f"http://127.0.0.1:{port}/api/v1/event?token=demo"
        eventually(
            lambda: httpx.post(url, json={"n": 1}, timeout=30).status_code == 200, "an event is taken", seconds=60
        )
        eventually(lambda: "route out: started" in (fresh.folder / "stderr").read_text(), "the route runs", seconds=120)
        status = json.loads(fresh.penstock("status", "--json").out)
        assert status["engine_pid"] is not None
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=90)
    finally:
        running.kill()
    told = (fresh.folder / "stderr").read_text()
    assert running.returncode == 0, told
    assert "draining, up to 30 s" in told
    assert f"127.0.0.1:{port}" in told
    assert ["out", "stopped", "1", "1", "0", "0", "0", "0"] in [line.split()[:8] for line in out.splitlines()]
    assert json.loads(fresh.penstock("status", "--json").out)["engine_pid"] is None
