"""An HTTP API that takes anything, keeps it, and notices when two requests to one path are there at a time."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiohttp import web


class Taken(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    all_headers: list[tuple[str, str]]
    """Also those that came more than once."""

    @property
    def records(self) -> list[Any]:
        """Of an array, of lines, or of one document."""
        if self.headers.get("content-type") == "application/x-ndjson":
            return [json.loads(line) for line in self.body.splitlines()]
        document = json.loads(self.body)
        return document if isinstance(document, list) else [document]


@dataclass
class RecordApi:
    decide: Callable[[str, int], tuple[int, float]] = lambda path, number: (200, 0.0)
    """Told the path and the number of its request; says the status, and after how many seconds."""
    retry_after: str = ""
    date: str = ""
    """What it says the time is; by default what it is."""
    taken: list[Taken] = field(default_factory=list)
    overlaps: list[str] = field(default_factory=list)
    most_in_flight: int = 0
    port: int = 0
    _in_flight: Counter[str] = field(default_factory=Counter)
    _numbers: Counter[str] = field(default_factory=Counter)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def records(self) -> list[Any]:
        return [record for each in list(self.taken) for record in each.records]

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.content.read()
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        path = request.raw_path if isinstance(request, web.Request) else request.path_qs
        number = self._numbers[path]
        self._numbers[path] += 1
        if self._in_flight[path]:
            self.overlaps.append(path)
        self._in_flight[path] += 1
        self.most_in_flight = max(self.most_in_flight, self._in_flight.total())
        try:
            status, delay = self.decide(path, number)
            await asyncio.sleep(delay)
            if status < 300:
                headers = {name.lower(): value for name, value in request.headers.items()}
                every = [(name.lower(), value) for name, value in request.headers.items()]
                self.taken.append(Taken(request.method, path, headers, body, every))
            more = {"Retry-After": self.retry_after} if self.retry_after and status == 429 else {}
            more |= {"Date": self.date} if self.date else {}
            return web.Response(status=status, text="said", headers=more)
        finally:
            self._in_flight[path] -= 1


@contextmanager
def record_api(api: RecordApi | None = None) -> Iterator[RecordApi]:
    """The server, in a thread of its own."""
    running = RecordApi() if api is None else api
    loop, ready, ended = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def serve() -> None:
        listening = web.Server(running.answer, handler_cancellation=True, access_log=None, auto_decompress=False)
        runner = web.ServerRunner(listening, handle_signals=False, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        running.port = runner.addresses[0][1]
        ready.set()
        await ended.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), name="record-api", daemon=True)
    thread.start()
    assert ready.wait(30), "the server does not start"
    try:
        yield running
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(30)
        loop.close()
