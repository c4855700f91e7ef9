"""A DataSet that is as strict as the real one, and worse behaved: its ``addEvents`` API, over HTTP.

Written from the API's reference and not from the destination's rules, so that the two check each other. It keeps every
event that it accepted, in order. Run it by hand: ``python -m tests.simulators.dataset --port 9000 --delay 0.05``.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import random
import re
import threading
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
from aiohttp import web

MOST_BYTES = 6 * 1024 * 1024
LATEST = 2**63 - 1
"""Nanoseconds since 1970."""
BODY_KEYS = ["token", "session", "sessionInfo", "events", "threads", "logs"]
EVENT_KEYS = ["thread", "sev", "ts", "log", "attrs"]
TOKEN = "write-token"


class Reply(NamedTuple):
    """What to do with a request instead of taking it at once."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    delay: float = 0.0
    reset: bool = False
    """Hang up, and do not accept it."""
    lose: bool = False
    """Accept it, and hang up without an answer."""


TAKE = Reply()
Decide = Callable[[str, int], Reply]
"""Told the session and the number of its request, from 0 on; says what to do with it."""


class Accepted(NamedTuple):
    session: str
    at: float
    events: list[dict[str, Any]]
    info: dict[str, Any]
    bytes: int
    is_lost: bool
    """Whether nobody was told."""


@dataclass
class DatasetServer:
    token: str = TOKEN
    decide: Decide = lambda session, number: TAKE
    cut: Callable[[int], bool] = lambda number: False
    """Told the number of the request, of all sessions, before its body is read: whether to hang up in the middle."""
    cuts: int = 0
    """How often it did."""
    most_bytes: int = MOST_BYTES
    queue_servers: int = 4
    """Each session belongs to one of them."""
    checks: bool = True
    """Whether bodies are looked into; a server that measures others does not."""
    requests: list[tuple[str, float, int]] = field(default_factory=list)
    """Of every request its session, when it came, and what was answered (0: nothing)."""
    accepted: list[Accepted] = field(default_factory=list)
    overlaps: list[str] = field(default_factory=list)
    """Sessions of which two requests were there at a time."""
    complaints: list[str] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)
    """How many requests of each session were accepted without an answer."""
    payload_bytes: int = 0
    most_in_flight: int = 0
    port: int = 0
    _came: int = 0
    _in_flight: Counter[str] = field(default_factory=Counter)
    _numbers: Counter[str] = field(default_factory=Counter)
    _away: set[int] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def in_flight(self) -> int:
        return sum(self._in_flight.values())

    def queue_server(self, session: str) -> int:
        return zlib.crc32(session.encode()) % self.queue_servers

    def set_away(self, *queue_servers: int) -> None:
        """These queue servers are being restarted: their sessions get 503."""
        self._away = set(queue_servers)

    @property
    def events(self) -> list[dict[str, Any]]:
        """All that was accepted, in order."""
        return [event for each in list(self.accepted) for event in each.events]

    def by_session(self) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for each in list(self.accepted):
            found[each.session] += each.events
        return dict(found)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method != "POST" or request.path != "/api/addEvents":
            return web.json_response({"status": "error/client/badParam", "message": "no such API"}, status=404)
        self._came += 1
        if self.cut(self._came - 1):
            self.cuts += 1
            await request.content.readany()
            hang_up(request)
        raw, came = await request.content.read(), time.monotonic()
        try:
            body = unpack(raw, request.headers.get("Content-Encoding", ""))
        except (ValueError, OSError, zlib.error) as error:
            self.complaints.append(f"damaged body: {error}")
            return web.json_response({"status": "error/client", "message": "damaged body"}, status=400)
        if len(body) > self.most_bytes:
            return web.json_response({"status": "error/client/tooLarge"}, status=413)
        self.payload_bytes += len(body)
        if self.checks:
            try:
                document, wrong = json.loads(body, parse_constant=_refuse), None
            except ValueError as error:
                document, wrong = {}, str(error)
            wrong = wrong or problem(document)
        else:
            document, wrong = {"token": self.token, "session": _session_of(body), "events": [], "sessionInfo": {}}, None
        if wrong is not None:
            self.complaints.append(wrong)
            return web.json_response({"status": "error/client/badParam", "message": wrong}, status=400)
        if document["token"] != self.token:
            return web.json_response({"status": "error/client/noPermission"}, status=401)
        return await self._take(request, document, came, len(body))

    async def _take(self, request: web.Request, document: dict[str, Any], came: float, size: int) -> web.StreamResponse:
        session = document["session"]
        number = self._numbers[session]
        self._numbers[session] += 1
        place = len(self.requests)
        self.requests.append((session, came, 0))
        if self._in_flight[session]:
            self.overlaps.append(session)
            self.requests[place] = (session, came, 429)
            return web.json_response({"status": "error/server/backoff"}, status=random.choice((429, 500)))
        self._in_flight[session] += 1
        self.most_in_flight = max(self.most_in_flight, sum(self._in_flight.values()))
        try:
            reply = self.decide(session, number)
            if reply.delay:
                await asyncio.sleep(reply.delay)
            if reply.reset:
                hang_up(request)
            if self.queue_server(session) in self._away:
                reply = Reply(503, b'{"status":"error/server/backoff"}')
            if reply.status == 200 and not reply.body:
                taken = document["events"], document["sessionInfo"]
                self.accepted.append(Accepted(session, time.monotonic(), *taken, size, reply.lose))
            self.requests[place] = (session, came, 0 if reply.lose or reply.reset else reply.status)
            if reply.lose:
                self.lost[session] += 1
                hang_up(request)
            if reply.status == 200 and not reply.body:
                return web.json_response({"status": "success", "bytesCharged": size})
            return web.Response(status=reply.status, body=reply.body, headers=dict(reply.headers))
        finally:
            self._in_flight[session] -= 1


def problem(document: Any) -> str | None:
    """What the API would object to first."""
    if not isinstance(document, dict) or list(document) != BODY_KEYS:
        return f"the body has {list(document) if isinstance(document, dict) else type(document)}"
    if not document["session"] or not isinstance(document["sessionInfo"], dict):
        return "no session"
    if not document["sessionInfo"].get("serverHost"):
        return "no serverHost"
    if not isinstance(document["events"], list) or not document["events"]:
        return "no events"
    known = {}
    for kind, about in (("threads", "name"), ("logs", "attrs")):
        ids = [each["id"] for each in document[kind]]
        if len(set(ids)) < len(ids) or any(list(each) != ["id", about] for each in document[kind]):
            return f"{kind} are {document[kind]}"
        if any(
            type(each["id"]) is not str or type(each[about]) is not {"name": str, "attrs": dict}[about]
            for each in document[kind]
        ):
            return f"{kind} are {document[kind]}"
        known[kind] = set(ids)
    for event in document["events"]:
        wrong = _event_problem(event, known)
        if wrong is not None:
            return wrong
    return None


def _event_problem(event: Any, known: dict[str, set[str]]) -> str | None:
    names = list(event)
    if [name for name in EVENT_KEYS if name in event] != names or not {"sev", "ts", "attrs"} <= set(names):
        return f"an event has {names}"
    if type(event["sev"]) is not int or not 0 <= event["sev"] <= 6:
        return f"sev is {event['sev']!r}"
    if (
        not isinstance(event["ts"], str)
        or re.fullmatch(r"[0-9]{1,19}", event["ts"]) is None
        or int(event["ts"]) > LATEST
    ):
        return f"ts is {event['ts']!r}"
    if not isinstance(event["attrs"], dict):
        return "attrs is no object"
    if "thread" in event and event["thread"] not in known["threads"]:
        return f"thread {event['thread']!r} is not listed"
    if "log" in event and event["log"] not in known["logs"]:
        return f"log {event['log']!r} is not listed"
    return None


def unpack(body: bytes, encoding: str) -> bytes:
    """The body as it was before it was compressed. Raises ``ValueError`` and what unpacking raises."""
    if encoding == "gzip":
        return gzip.decompress(body)
    if encoding == "zstd":
        with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
            unpacked: bytes = stream.read()
            return unpacked
    return body


def hang_up(request: web.BaseRequest) -> None:
    """End the connection at once, without an answer."""
    assert request.transport is not None, "nobody else has ended it"
    request.transport.abort()
    raise web.HTTPServiceUnavailable


def _session_of(body: bytes) -> str:
    start = body.index(b'"session":"') + len(b'"session":"')
    return body[start : body.index(b'"', start)].decode()


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


@contextmanager
def dataset_server(server: DatasetServer | None = None, port: int = 0) -> Iterator[DatasetServer]:
    """The server, in a thread of its own."""
    running = DatasetServer() if server is None else server
    loop, ready, ended = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def serve() -> None:
        runner = await start_server(running, port)
        ready.set()
        await ended.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), name="dataset-simulator", daemon=True)
    thread.start()
    assert ready.wait(30), "the simulator does not start"
    try:
        yield running
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(30)
        loop.close()


async def start_server(server: DatasetServer, port: int) -> web.ServerRunner:
    # A client that is gone has no request in flight any more.
    runner = web.ServerRunner(
        web.Server(server.answer, handler_cancellation=True, access_log=None, auto_decompress=False),
        handle_signals=False,
        shutdown_timeout=0.1,
    )
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    server.port = runner.addresses[0][1]
    return runner


def _run_by_hand() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--token", default=TOKEN)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--busy", type=float, default=0.0, help="share of requests that get 503")
    parser.add_argument("--lose", type=float, default=0.0, help="share of requests that are accepted without an answer")
    parser.add_argument("--show", action="store_true", help="print every event that is accepted")
    options = parser.parse_args()

    def decide(session: str, number: int) -> Reply:
        roll = random.random()
        if roll < options.busy:
            return Reply(503, b"{}", delay=options.delay)
        return Reply(delay=options.delay, lose=roll < options.busy + options.lose)

    server = DatasetServer(options.token, decide)

    async def serve() -> None:
        await start_server(server, options.port)
        print(f"takes events at {server.url}/api/addEvents", flush=True)
        shown = 0
        while True:
            await asyncio.sleep(1)
            new = server.accepted[shown:]
            shown += len(new)
            for each in new:
                for event in each.events if options.show else ():
                    print(json.dumps({"session": each.session, **event}), flush=True)
            if new:
                count = sum(len(each.events) for each in new)
                print(f"{count} events in {len(new)} requests; {len(server.overlaps)} overlaps", flush=True)

    with suppress(KeyboardInterrupt):
        asyncio.run(serve())


if __name__ == "__main__":
    _run_by_hand()
