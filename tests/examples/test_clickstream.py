"""The clickstream example, run as its README says, on a database of the test's own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg

from penstock.testing.waiting import HANG, eventually
from tests.support.ports import free_port, listens
from tests.support.postgres import postgres

EXAMPLE = Path(__file__).parents[2] / "examples" / "clickstream"
PENSTOCK = [sys.executable, "-m", "penstock.cli.main"]


def test_browser_events_arrive_looked_up_mapped_and_once(tmp_path: Path) -> None:
    folder = tmp_path / "clickstream"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("data", "pg", "geo", "__pycache__"))
    port = free_port()
    with postgres() as url:
        environment = {**os.environ, "CLICKSTREAM_PORT": str(port), "CLICKSTREAM_POSTGRES": url}

        def run(*command: str) -> str:
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout

        def totals() -> dict[str, Any]:
            (route,) = json.loads(run(*PENSTOCK, "status", "--json"))["routes"]
            found: dict[str, Any] = route
            return found

        def ask(query: str) -> tuple[Any, ...]:
            with psycopg.connect(url) as connection:
                return connection.execute(query.encode()).fetchone() or ()

        run(sys.executable, "geo.py")
        with (folder / "stderr").open("w") as log:
            running = subprocess.Popen([*PENSTOCK, "run"], cwd=folder, env=environment, stderr=log)
        try:
            eventually(lambda: listens(port), "the collector listens")
            assert run(sys.executable, "send.py", "200") == "sent 220 events\n"
            eventually(lambda: totals()["in"] == 220 and totals()["lag"] == 0, "all is delivered", every=1)
            running.send_signal(signal.SIGINT)
            assert running.wait(timeout=HANG) == 0
        finally:
            running.kill()
        route = totals()
        assert route["adds_up"]
        assert route["failed"] == 0
        assert route["loaded"] + route["skipped"] == 220
        events, orders = (ask(f"SELECT count(*) FROM clickstream.{table}")[0] for table in ("events", "orders"))
        assert 0 < orders < events
        assert events + orders < route["loaded"], "what was sent twice is one row"
        assert ask("SELECT count(DISTINCT geo_city), count(DISTINCT agent_ua_family) FROM clickstream.events") == (3, 3)
        assert ask("SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attname = 'total'") == (
            "numeric(12,2)",
        )
        shown = json.loads(run(*PENSTOCK, "schema", "show", "--json"))
        columns = {column["name"]: column for table in shown for column in table["columns"]}
        assert columns["total"]["paths"] == ["/total"]
        assert "card_number" not in columns
