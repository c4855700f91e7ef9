"""The collector keeps the contract of all sources."""

from __future__ import annotations

import json
from pathlib import Path

import httpx

from penstock.testing.source import SourceContract
from tests.sources.http.server import CLIENT, TOKENS
from tests.support import plain_http
from tests.support.ports import free_port


class TestHttpSource(SourceContract):
    type_name = "http"
    exactly_once = False

    def config(self, folder: Path) -> str:
        chosen = folder / "port"
        if not chosen.exists():
            chosen.write_text(str(free_port()))
        listen = f"127.0.0.1:{chosen.read_text()}"
        return json.dumps({"listen": listen, "workers": 1, "tokens": TOKENS})

    def feed(self, folder: Path, lines: list[bytes]) -> bool:
        url = f"http://127.0.0.1:{(folder / 'port').read_text()}/api/v1/events/bulk"
        try:
            return plain_http.post(url, content=b"\n".join(lines), headers=CLIENT).status_code == 200
        except httpx.TransportError:
            return False
