"""The database of the ledger is away for a while: the log says so in lines, and nothing is lost."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from penstock.testing.waiting import HANG, eventually
from tests.cli.processes import Terminal, running
from tests.support.ports import free_port, listens
from tests.support.postgres import Server

CONFIG = """\
name: shop
ledger: {{url: "{ledger}"}}
engine: {{restart_backoff: 200ms}}
sources:
  web: {{type: http, listen: "127.0.0.1:{port}", tokens: [{{id: site, client_secret: demo}}]}}
routes:
  base: {{from: web, every: 100ms, to: {{type: "null"}}}}
"""


def test_an_outage_of_the_ledger_is_told_in_lines(tmp_path: Path) -> None:
    server, port = Server(), free_port()
    server.start()
    try:
        (tmp_path / "pipeline.yaml").write_text(CONFIG.format(ledger=server.url, port=port))
        with running(tmp_path) as run:
            eventually(lambda: listens(port), "the collector listens")
            _send(port)
            eventually(lambda: "1 loaded" in run.said, "the first event is delivered")
            server.kill()
            _send(port)
            eventually(lambda: "Starting again" in run.said, "it tries again")
            server.start()
            eventually(lambda: run.said.count("1 loaded") == 2, "the second event is delivered")
            run.interrupt()
            run.process.wait(timeout=120)
        assert "\tat org.apache" not in run.said
        assert "Traceback" not in run.said
        assert Terminal(tmp_path).counts("base") == (2, 2, 0, 0, 0)
    finally:
        server.kill()
        server.remove()


def _send(port: int) -> None:
    url = f"http://127.0.0.1:{port}/api/v1/event?token=demo"
    assert urllib.request.urlopen(url, b'{"n": 1}', timeout=HANG).status == 200
