"""What was acknowledged before something else was sent is older, also where the collector has several workers."""

from __future__ import annotations

import http.client
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb

from penstock.engine.layout import Layout
from penstock.engine.ledger import Ledger, sqlite_url
from penstock.log.local import LocalLog
from tests.cli.processes import running
from tests.support.database import Database
from tests.support.ports import free_port, listens
from tests.support.waiting import eventually

CONFIG = """\
name: shop
sources:
  web: {{type: http, listen: "127.0.0.1:{port}", tokens: [{{id: site, client_secret: demo}}]}}
routes:
  lake: {{from: web, to: {{type: duckdb, path: ./lake.duckdb, primary_key: [id], every: 100ms}}}}
  base:
    from: web
    to: {{type: postgres, url: "{url}", database_schema: "{schema}", primary_key: [id], every: 5s}}
"""
IDS, TIMES = 60, 6


def post(port: int, number: int) -> None:
    """Values of one id, each sent when the one before was acknowledged, each on a connection of its own so that all
    workers get some."""
    for value in range(TIMES):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/api/v1/event?token=demo", json.dumps({"id": number, "value": value}))
        assert connection.getresponse().status == 200
        connection.close()


def test_of_values_that_were_acknowledged_one_after_the_other_the_last_one_stays(
    tmp_path: Path, database: Database
) -> None:
    port = free_port()
    (tmp_path / "pipeline.yaml").write_text(CONFIG.format(port=port, url=database.dsn, schema=database.schema))
    with running(tmp_path) as run:
        eventually(lambda: listens(port), "the collector listens", 120)
        with ThreadPoolExecutor(10) as senders:
            list(senders.map(lambda number: post(port, number), range(IDS)))
        ledger = Ledger.open(sqlite_url(Layout(tmp_path / "data").ledger), "shop")
        for route in ("lake", "base"):
            eventually(lambda: ledger.totals(route).loaded == IDS * TIMES, f"{route} has all", 600, every=1)  # noqa: B023
        ledger.close()
        run.interrupt()
        run.process.wait(timeout=120)
    log = LocalLog(tmp_path / "data" / "log")
    used = Counter({partition: log.bounds(partition).end for partition in log.partitions(["web"])})
    assert len(used) == 2, "the default number of workers"
    assert all(used.values())
    with duckdb.connect(tmp_path / "lake.duckdb", read_only=True) as lake:
        assert lake.execute("SELECT value, count(*) FROM events GROUP BY 1").fetchall() == [(TIMES - 1, IDS)]
    assert database.ask("SELECT value, count(*) FROM events GROUP BY 1") == [(TIMES - 1, IDS)]
