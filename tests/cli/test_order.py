"""What was acknowledged before something else was sent is older, also where the collector has several workers."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import chain
from pathlib import Path

import duckdb

from penstock.engine.layout import Layout
from penstock.engine.ledger import Ledger, sqlite_url
from penstock.log.local_log import LocalLog
from penstock.testing.waiting import HANG, eventually
from tests.cli.processes import running
from tests.support.database import Database
from tests.support.ports import free_port, listens

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
WORKERS = 2
"""The default."""
IDS, TIMES, SENDERS = 60, 6, 5


def ends(log: LocalLog) -> dict[int, int]:
    return {partition: log.bounds(partition).end for partition in log.partitions(["web"])}


def post(connection: HTTPConnection, number: int, value: int) -> None:
    connection.request("POST", "/api/v1/event?token=demo", json.dumps({"id": number, "value": value}))
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200


def doors(port: int, log: LocalLog) -> list[list[HTTPConnection]]:
    """For each worker so many connections as there are senders. Which worker has a connection is the kernel's choice,
    and seen by the partition that grows: connections are opened until each worker has enough of them."""
    found: defaultdict[int, list[HTTPConnection]] = defaultdict(list)

    def open_one() -> bool:
        connection, before = HTTPConnection("127.0.0.1", port, timeout=HANG), ends(log)
        post(connection, -1, 0)
        (grown,) = (partition for partition, end in ends(log).items() if end != before.get(partition, 0))
        found[grown].append(connection)
        return len(found) == WORKERS and all(len(each) >= SENDERS for each in found.values())

    eventually(open_one, "every worker has connections", every=0.01)
    return list(found.values())


def send(connections: tuple[HTTPConnection, ...], numbers: Iterable[int]) -> None:
    """Values of each id, each sent when the one before was acknowledged, and to another worker than that one."""
    for number in numbers:
        for value in range(TIMES):
            post(connections[(number + value) % len(connections)], number, value)


def test_of_values_that_were_acknowledged_one_after_the_other_the_last_one_stays(
    tmp_path: Path, database: Database
) -> None:
    port = free_port()
    (tmp_path / "pipeline.yaml").write_text(CONFIG.format(port=port, url=database.dsn, schema=database.schema))
    with running(tmp_path) as run:
        eventually(lambda: listens(port), "the collector listens")
        log = LocalLog(tmp_path / "data" / "log")
        of_workers = doors(port, log)
        with ThreadPoolExecutor(SENDERS) as senders:
            mixed = list(zip(*of_workers, strict=False))[:SENDERS]
            list(senders.map(send, mixed, [range(first, IDS, SENDERS) for first in range(SENDERS)]))
        for connection in chain(*of_workers):
            connection.close()
        taken = sum(ends(log).values())
        ledger = Ledger.open(sqlite_url(Layout(tmp_path / "data").ledger), "shop")
        for route in ("lake", "base"):
            eventually(lambda: ledger.totals(route).loaded == taken, f"{route} has all", every=0.5)  # noqa: B023
        ledger.close()
        run.interrupt()
        run.process.wait(timeout=HANG)
    with duckdb.connect(tmp_path / "lake.duckdb", read_only=True) as lake:
        assert lake.execute("SELECT value, count(*) FROM events WHERE id >= 0 GROUP BY 1").fetchall() == [
            (TIMES - 1, IDS)
        ]
    assert database.ask("SELECT value, count(*) FROM events WHERE id >= 0 GROUP BY 1") == [(TIMES - 1, IDS)]
