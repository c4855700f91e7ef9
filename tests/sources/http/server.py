"""A real collector on a free port, for tests."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from penstock.log.local_log import LocalLog
from penstock.record import Record, records
from penstock.sources.contract import SourceContext
from penstock.testing.source import log_records, running
from penstock.testing.waiting import HANG, eventually
from tests.support import plain_http
from tests.support.ports import free_port

CLIENT = {"X-Auth-Token": "public"}
SERVER = {"X-Auth-Token": "private"}
TOKENS = [{"id": "site", "client_secret": "public", "server_secret": "private"}]


@dataclass(frozen=True)
class Running:
    """A collector that answers."""

    url: str
    port: int
    folder: Path
    http: httpx.Client
    pid: int
    metrics_port: int

    def post(
        self, path: str, body: bytes | str, headers: dict[str, str] | None = None, query: str = ""
    ) -> httpx.Response:
        given = CLIENT if headers is None else headers
        return self.http.post(f"{self.url}{path}{query}", content=body, headers=given)

    def pending_bytes(self) -> float:
        """What the collector says it holds and has not put on disk."""
        return self.counted("penstock_collector_pending")

    def counted(self, name: str) -> float:
        """The sum of the counters whose lines begin so. They are up to half a second old."""
        page = plain_http.get(f"http://127.0.0.1:{self.metrics_port}/metrics").text
        return sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(name))

    def records(self) -> list[Record]:
        return log_records(self.folder / "log")

    def tail(self) -> int:
        """Where the next record of a collector with one worker will be."""
        log = LocalLog(self.folder / "log")
        return max((log.bounds(partition).end for partition in log.partitions()), default=0)

    def since(self, offset: int) -> list[Record]:
        """The records from there on."""
        log = LocalLog(self.folder / "log")
        return [r for partition in log.partitions() for batch in log.read(partition, offset) for r in records(batch)]


@contextmanager
def collector(folder: Path, log_options: str = "{}", host: str = "127.0.0.1", **options: object) -> Iterator[Running]:
    port = free_port()
    metrics = free_port()
    config = {
        "listen": f"{host}:{port}",
        "workers": 1,
        "tokens": TOKENS,
        "metrics": f"127.0.0.1:{metrics}",
        **options,
    }
    (folder / "state").mkdir(exist_ok=True)
    context = SourceContext("web", folder / "log", log_options, folder / "state")
    tls = config.get("tls")
    trusted = ssl.create_default_context(cafile=tls["cert"]) if isinstance(tls, dict) else plain_http.NO_AUTHORITIES
    with running("http", json.dumps(config), context) as process, httpx.Client(timeout=HANG, verify=trusted) as http:
        url = f"{'http' if tls is None else 'https'}://{host}:{port}"
        eventually(lambda: _is_up(http, url), "the collector's first answer")
        assert process.pid is not None
        yield Running(url, port, folder, http, process.pid, metrics)


def _is_up(http: httpx.Client, url: str) -> bool:
    try:
        return http.get(f"{url}/healthz").status_code == 200
    except httpx.TransportError:
        return False
