"""A real OTLP source on a free port, for tests."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from penstock.record import Record
from penstock.sources.contract import SourceContext
from penstock.testing.source import log_records, running
from penstock.testing.waiting import HANG, eventually
from tests.support import plain_http
from tests.support.ports import free_port, listens

PROTOBUF = {"Content-Type": "application/x-protobuf"}
JSON = {"Content-Type": "application/json"}
TOKENS = [{"id": "apps", "client_secret": "public", "server_secret": "private"}]


@dataclass(frozen=True)
class Running:
    """A source that answers."""

    url: str
    port: int
    grpc_port: int
    folder: Path
    http: httpx.Client
    pid: int
    metrics_port: int

    def post(
        self, body: bytes, headers: dict[str, str] | None = None, signal: str = "traces", **others: str
    ) -> httpx.Response:
        given = {**(PROTOBUF if headers is None else headers), **others}
        return self.http.post(f"{self.url}/v1/{signal}", content=body, headers=given)

    def records(self) -> list[Record]:
        return log_records(self.folder / "log")

    def counted(self, name: str) -> float:
        """The sum of the counters whose lines begin so. They are up to half a second old."""
        page = plain_http.get(f"http://127.0.0.1:{self.metrics_port}/metrics").text
        return sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(name))


@contextmanager
def receiver(folder: Path, grpc: bool = False, **options: object) -> Iterator[Running]:
    port, metrics, grpc_port = free_port(), free_port(), free_port()
    config = {"listen": f"127.0.0.1:{port}", "workers": 1, "metrics": f"127.0.0.1:{metrics}", **options}
    if grpc:
        config["grpc"] = f"127.0.0.1:{grpc_port}"
    (folder / "state").mkdir(exist_ok=True)
    tls = config.get("tls")
    trusted = ssl.create_default_context(cafile=tls["cert"]) if isinstance(tls, dict) else plain_http.NO_AUTHORITIES
    context = SourceContext("spans", folder / "log", "{}", folder / "state")
    with (
        running("otlp", json.dumps(config), context) as process,
        httpx.Client(timeout=HANG, verify=trusted) as http,
    ):
        url = f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"
        eventually(lambda: _is_up(http, url), "the source's first answer")
        if grpc:
            eventually(lambda: listens(grpc_port), "the port for gRPC")
        assert process.pid is not None
        yield Running(url, port, grpc_port, folder, http, process.pid, metrics)


def _is_up(http: httpx.Client, url: str) -> bool:
    try:
        return http.get(f"{url}/healthz").status_code == 200
    except httpx.TransportError:
        return False
