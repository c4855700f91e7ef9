"""The OTLP source keeps the contract of all sources."""

from __future__ import annotations

import json
from pathlib import Path

import httpx

from penstock.testing.source import ReaderContract
from tests.sources.otlp.receiver import JSON
from tests.support import plain_http
from tests.support.ports import free_port

SPAN = b'"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"%032x","spanId":"%016x"}]}]}]' % (1, 1)


class TestOtlpSource(ReaderContract):
    """What it is fed are requests with one span; the numbers are in keys that OTLP does not know, and ignores."""

    type_name = "otlp"
    exactly_once = False
    namespace = "traces"

    def config(self, folder: Path) -> str:
        chosen = folder / "port"
        if not chosen.exists():
            chosen.write_text(str(free_port()))
        return json.dumps({"listen": f"127.0.0.1:{chosen.read_text()}", "workers": 1})

    def feed(self, folder: Path, lines: list[bytes]) -> bool:
        url = f"http://127.0.0.1:{(folder / 'port').read_text()}/v1/traces"
        try:
            with httpx.Client(verify=plain_http.NO_AUTHORITIES) as http:
                return all(
                    http.post(url, content=b"%b,%b}" % (line[:-1], SPAN), headers=JSON).status_code == 200
                    for line in lines
                )
        except httpx.TransportError:
            return False
