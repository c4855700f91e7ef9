"""The pipeline from HTTP to DuckDB that is attacked while a client posts."""

from __future__ import annotations

from pathlib import Path

from penstock.demo.sender import Client
from tests.chaos.running import Running
from tests.support.ports import free_port
from tests.support.waiting import eventually

SECRET = "demo"

_PIPELINE = """\
name: chaos
data_dir: ./data
sources:
  web: {{type: http, listen: "127.0.0.1:{port}", workers: 2, tokens: [{{id: site, client_secret: {secret}}}]}}
routes:
  warehouse:
    from: [web]
    to: {{type: duckdb, path: ./warehouse.duckdb, table: events, mode: stream, every: 100ms}}
"""


class Project(Running):
    def __init__(self, folder: Path, faults: str = "") -> None:
        self.port = free_port()
        super().__init__(folder, _PIPELINE.format(port=self.port, secret=SECRET), faults)

    @property
    def warehouse(self) -> Path:
        return self.folder / "warehouse.duckdb"

    def wait_until_ready(self, seconds: float = 60.0) -> None:
        def ready() -> bool:
            self.keep_up()
            return Client(self.port).ready()

        eventually(ready, f"the collector is ready (see {self.log})", seconds)
