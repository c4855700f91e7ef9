"""Somebody locks a table for long: the route goes on with the others, says so, and catches up by itself."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import psycopg
import pytest

from penstock.engine.layout import Layout
from penstock.engine.ledger import Ledger, Totals, sqlite_url
from penstock.testing.waiting import HANG, eventually
from tests.cli.processes import Terminal, running
from tests.support.database import Database
from tests.support.ports import free_port, listens

CONFIG = """\
name: shop
sources:
  web: {{type: http, listen: "127.0.0.1:{port}", tokens: [{{id: site, client_secret: demo}}]}}
routes:
  base:
    from: web
    every: 100ms
    to:
      type: postgres
      url: "{url}"
      database_schema: "{schema}"
      table: "{{{{ kind }}}}"
      tables: [orders, visits]
      lock_timeout: 200ms
"""


def test_the_other_table_gets_its_rows_and_the_locked_one_gets_them_later_in_order(
    tmp_path: Path, database: Database
) -> None:
    port = free_port()
    (tmp_path / "pipeline.yaml").write_text(CONFIG.format(port=port, url=database.dsn, schema=database.schema))
    terminal = Terminal(tmp_path)

    def send(n: int) -> None:
        """One event for each table."""
        for kind in ("orders", "visits"):
            body = f'{{"kind": "{kind}", "n": {n}}}'.encode()
            url = f"http://127.0.0.1:{port}/api/v1/event?token=demo"
            assert urllib.request.urlopen(url, body, timeout=HANG).status == 200

    def rows(table: str) -> int:
        return int(database.ask(f"SELECT count(*) FROM {table}")[0][0])

    with running(tmp_path) as run:
        eventually(lambda: listens(port), "the collector listens")
        send(0)
        ledger = Ledger.open(sqlite_url(Layout(tmp_path / "data").ledger), "shop")
        eventually(lambda: ledger.totals("base").loaded == 2, "both tables are there")
        with psycopg.connect(database.dsn) as somebody:
            somebody.execute(f'LOCK TABLE "{database.schema}".orders'.encode())
            for n in range(1, 6):
                send(n)
                eventually(lambda: rows("visits") == n + 1, "the table that is not locked has its row")  # noqa: B023
            found = eventually(lambda: ledger.totals("base").waiting == 5 and terminal.route("base"), "five wait")
            assert found["state"] == "running"
            assert found["to_go"] == 5
            assert found["tables_waiting"]["orders"]["rows"] == 5
            assert "lock" in found["tables_waiting"]["orders"]["reason"]
            assert "table orders has been waiting for 5 rows" in terminal.penstock("status").stdout
            assert "5 rows wait for it" in terminal.penstock("doctor", "--json").stdout
            send(6)
        eventually(lambda: ledger.totals("base") == Totals(items=14, loaded=14), "all rows are there", every=0.5)
        ledger.close()
        run.interrupt()
        run.process.wait(timeout=120)
    assert database.ask("SELECT n FROM orders ORDER BY ctid") == [(n,) for n in range(7)]
    assert rows("visits") == 7


def test_a_table_that_is_free_again_gets_its_rows_while_the_route_waits_for_another(
    tmp_path: Path, database: Database
) -> None:
    port = free_port()
    (tmp_path / "pipeline.yaml").write_text(CONFIG.format(port=port, url=database.dsn, schema=database.schema))

    def send(kind: str, n: int) -> None:
        url = f"http://127.0.0.1:{port}/api/v1/event?token=demo"
        body = f'{{"kind": "{kind}", "n": {n}}}'.encode()
        assert urllib.request.urlopen(url, body, timeout=HANG).status == 200

    with running(tmp_path) as run:
        eventually(lambda: listens(port), "the collector listens")
        send("orders", 0)
        send("visits", 0)
        ledger = Ledger.open(sqlite_url(Layout(tmp_path / "data").ledger), "shop")
        eventually(lambda: ledger.totals("base").loaded == 2, "both tables are there")
        with psycopg.connect(database.dsn) as first, psycopg.connect(database.dsn) as second:
            first.execute(f'LOCK TABLE "{database.schema}".orders'.encode())
            send("orders", 1)
            eventually(lambda: ledger.totals("base").waiting == 1, "a row waits")
            second.execute(f'LOCK TABLE "{database.schema}".visits'.encode())
            send("visits", 1)
            eventually(lambda: ledger.standing("base").pending is not None, "the route waits for the last table")
            eventually(lambda: (at := ledger.activity("base")) and at.state == "retrying", "and says so")
            first.rollback()
            eventually(
                lambda: database.ask("SELECT n FROM orders ORDER BY n") == [(0,), (1,)], "the free table has all"
            )
            eventually(lambda: ledger.waiting_tables("base").keys() == {"visits"}, "and the route goes on for it")
        eventually(lambda: ledger.totals("base") == Totals(items=4, loaded=4), "all rows are there", every=0.5)
        ledger.close()
        run.interrupt()
        run.process.wait(timeout=120)
    assert database.ask("SELECT n FROM visits ORDER BY n") == [(0,), (1,)]


@pytest.mark.parametrize("patience", ["2s", None])
def test_a_run_with_an_end_that_is_over_before_a_table_is_free_says_which_one_waits(
    tmp_path: Path, database: Database, patience: str | None
) -> None:
    """Without patience it waits for as long as nobody stops it, and says so."""
    config = CONFIG.format(port=0, url=database.dsn, schema=database.schema)
    start, end = config.index("  web: "), config.index("routes:")
    config = config[:start] + "  web: {type: file, path: ./web.ndjson}\n" + config[end:]
    (tmp_path / "pipeline.yaml").write_text(config.replace("tables: [", "adopt: [orders]\n      tables: ["))
    (tmp_path / "web.ndjson").write_text('{"kind": "visits", "n": 1}\n{"kind": "orders", "n": 1}\n')
    schema = database.schema
    database.ask(f'CREATE SCHEMA "{schema}"; CREATE TABLE "{schema}".orders (n bigint, kind text)')
    with psycopg.connect(database.dsn) as somebody:
        somebody.execute(f'LOCK TABLE "{schema}".orders'.encode())
        with running(tmp_path, words=["--once", *(["--patience", patience] if patience else [])]) as run:
            if patience is None:
                eventually(lambda: "1 rows wait for table orders" in run.said, "it says what it waits for")
                run.interrupt()
            assert run.process.wait(timeout=2 * HANG) == 3
    assert "route base: table orders waits for 1 row: PEN-DST-027" in run.said
    assert database.ask("SELECT n FROM visits") == [(1,)]
