"""The collector's requests: from the socket to the log, and the answer back.

``Collector`` is an RSGI application for one worker. A request is: find the token, read the body within its limits, find
the events in it, add their context, submit them as one group, and answer when the log says they are durable. All events
of a request are submitted together, so a body is taken whole or not at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Protocol

from granian.rsgi import ProtocolClosed  # type: ignore[attr-defined]  # imported there to be imported from there

from penstock.errors import LogFull
from penstock.log.group import Entry
from penstock.record import Header
from penstock.sources.http import answers, metrics, openapi
from penstock.sources.http.addresses import ClientAddress
from penstock.sources.http.answers import Answer
from penstock.sources.http.bodies import BadBody, BodyLimits, Event, events, lines
from penstock.sources.http.commits import Commits
from penstock.sources.http.config import HttpConfig
from penstock.sources.http.encodings import DamagedBody, TooLarge, UnknownEncoding, unpacked
from penstock.sources.http.enrich import Clock, Context, context, enriched
from penstock.sources.http.metrics import Tally
from penstock.sources.http.readiness import Readiness
from penstock.sources.http.tokens import Grant, Headers, TokenTable, presented_secret

USER_AGENT_LENGTH = 1024
LINES_PER_TURN = 500

_RecordHeaders = tuple[tuple[str, str], ...]

_log = logging.getLogger("penstock.http")


class Scope(Protocol):
    """What RSGI says of a request."""

    method: str
    path: str
    query_string: str
    client: str

    @property
    def headers(self) -> Headers: ...


class Exchange(Protocol):
    """RSGI's two-way end of a request: the body comes in, the answer goes out."""

    def __call__(self) -> Awaitable[bytes]: ...
    def __aiter__(self) -> AsyncIterator[bytes]: ...
    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None: ...
    def response_empty(self, status: int, headers: list[tuple[str, str]]) -> None: ...


@dataclass(frozen=True, slots=True)
class Face:
    """One way in. ``name`` goes into the record's headers and the metrics."""

    name: str
    server_secret: bool = True
    client_secret: bool = True
    api: bool = True
    bulk: bool = False


JS = Face("js", server_secret=False, api=False)
API = Face("api", client_secret=False)
BULK = Face("bulk", bulk=True)
FACES = {
    "/api/v1/event": JS,
    "/api/v1/events": JS,
    "/api/v1/s2s/event": API,
    "/api/v1/s2s/events": API,
    "/api/v1/events/bulk": BULK,
}


class Collector:
    """The RSGI application of one worker. ``commits`` is set once the worker owns its partition."""

    def __init__(self, config: HttpConfig, source: str, tally: Tally, tally_path: Path) -> None:
        limits = config.limits
        self.commits: Commits | None = None
        self.log_broke: Callable[[], None] = lambda: None
        """Called when the log fails for another reason than a full disk: only opening it again can mend that."""
        self.readiness = Readiness()
        self.tally = tally
        self._tally_path = tally_path
        self._source = source
        self._namespace = config.namespace or source
        self._tokens = TokenTable(config.tokens)
        self._address = ClientAddress(config.trusted_proxies).of
        self._expose_secret = config.expose_secret
        self._body_bytes = limits.body_bytes
        self._pending_bytes = limits.pending_bytes
        self._disk_reserve = config.limits.disk_reserve
        self._body_timeout = limits.body_timeout
        self._limits = BodyLimits(limits.event_bytes, limits.body_bytes, limits.body_events)
        self._clock = Clock()
        self._headers_of = cache(_record_headers)
        self._reading: dict[asyncio.Task[None], float] = {}
        self._late: set[asyncio.Task[None]] = set()
        self._pages: dict[str, Callable[[], Answer]] = {
            "/healthz": lambda: answers.ALIVE,
            "/readyz": self._ready,
            "/metrics": self._metrics,
            "/openapi.json": openapi.answer,
        }

    async def __rsgi__(self, scope: Scope, exchange: Exchange) -> None:
        path = scope.path
        face = FACES.get(path)
        try:
            if face is None:
                answer = self._page(scope)
                name = path if path in self._pages else "other"
            else:
                name = face.name
                answer = await self._take(face, scope, exchange) if scope.method == "POST" else _POST_ONLY
        except ProtocolClosed:
            self.tally.request("gone" if face is None else face.name, 499)
            return
        except Exception:
            _log.exception("a request to %s failed", path)
            answer = answers.closing(answers.FAILED)
        self.tally.request(name, answer.status)
        if scope.method == "HEAD":
            exchange.response_empty(answer.status, answer.headers)
        else:
            exchange.response_bytes(*answer)

    def expire_late_bodies(self, now: float) -> None:
        """End the requests whose body has not arrived in time; called about twice a second."""
        for task, deadline in list(self._reading.items()):
            if deadline > now:
                return  # in order of arrival, and all wait equally long
            del self._reading[task]
            self._late.add(task)
            task.cancel()

    async def _take(self, face: Face, scope: Scope, exchange: Exchange) -> Answer:
        headers = scope.headers
        secret = presented_secret(scope.query_string, headers)
        if secret is None:
            return answers.NO_TOKEN
        grant = self._tokens.grant(secret)
        refusal = _refusal(face, grant)
        if refusal is not None or grant is None:
            return refusal or answers.UNKNOWN_TOKEN
        if self.commits is None or self.readiness.stopping:
            return answers.closing(answers.NOT_READY)
        if self.readiness.disk_free < self._disk_reserve:
            return answers.closing(answers.LOG_FULL)
        held = 0
        try:
            length = _body_length(headers)
            if length is None:
                body = bytearray()
                async for chunk in self._chunks(exchange):
                    held += len(chunk)
                    self.tally.pending_bytes += len(chunk)
                    body += chunk
                    if held > self._body_bytes:
                        return answers.too_large(self._body_bytes)
                    if self.tally.pending_bytes > self._pending_bytes and self.tally.pending_bytes > held:
                        return answers.closing(answers.OVERLOADED)
                received = bytes(body)
            elif length > self._body_bytes:
                return answers.too_large(self._body_bytes)
            elif self.tally.pending_bytes + length > self._pending_bytes and self.tally.pending_bytes:
                return answers.closing(answers.OVERLOADED)
            else:
                held = length
                self.tally.pending_bytes += length
                received = await self._in_time(exchange()) if length else b""
            return await self._store(face, grant, secret, scope, received)
        except _BodyLate:
            return answers.BODY_TIMEOUT
        except BadBody as error:
            return answers.bad_body(error)
        except TooLarge:
            return answers.too_large(self._body_bytes)
        except (DamagedBody, UnknownEncoding) as error:
            return answers.bad_encoding(str(error), known=isinstance(error, DamagedBody))
        finally:
            self.tally.pending_bytes -= held

    async def _store(self, face: Face, grant: Grant, secret: str, scope: Scope, received: bytes) -> Answer:
        encoding = scope.headers.get("content-encoding")
        body = unpacked(received, encoding, self._body_bytes) if encoding else received
        micros, timestamp = self._clock.now()
        added = context(
            source_ip=self._address(scope.client, scope.headers),
            timestamp=timestamp,
            api_key=secret if self._expose_secret else grant.token_id,
            user_agent=None if face.api else (scope.headers.get("user-agent") or "")[:USER_AGENT_LENGTH] or None,
            api=face.api,
        )
        headers = self._headers_of(grant.token_id, face.name)
        if face.bulk:
            return await self._store_lines(body, micros, headers, added)
        namespace = self._namespace
        batch = [
            Entry(micros, namespace, None, headers, enriched(text, value, added))
            for text, value in events(body, self._limits)
        ]
        return await self._submit(batch, len(batch)) or answers.accepted(len(batch))

    async def _store_lines(self, body: bytes, micros: int, headers: _RecordHeaders, added: Context) -> Answer:
        batch: list[Entry] = []
        malformed = 0
        for item in lines(body, self._limits):
            if isinstance(item, Event):
                batch.append(Entry(micros, self._namespace, None, headers, enriched(item.text, item.value, added)))
            else:
                malformed += 1
                marked = (*headers, (str(Header.MALFORMED), item.reason))
                batch.append(Entry(micros, self._namespace, None, marked, item.raw))
            if len(batch) % LINES_PER_TURN == 0:
                await asyncio.sleep(0)  # a large body must not keep small requests waiting
        taken = len(batch) - malformed
        return await self._submit(batch, taken, malformed) or answers.accepted_lines(taken, malformed)

    async def _submit(self, batch: list[Entry], events: int, malformed: int = 0) -> Answer | None:
        """None when all is durable; else the answer that says why nothing was taken."""
        if not batch:
            return None
        waiting = self.commits.submit(batch) if self.commits is not None else None
        if waiting is None:
            return answers.OVERLOADED
        error = await waiting
        if error is not None:
            self.readiness.commit_failed()
            _log.error("nothing of %d records was taken: %s", len(batch), error)
            if isinstance(error, LogFull):
                return answers.LOG_FULL
            self.log_broke()
            return answers.LOG_FAILED
        self.readiness.commit_worked()
        tally = self.tally
        tally.events += events
        tally.malformed += malformed
        tally.bytes += sum([len(entry.data) for entry in batch])
        return None

    async def _in_time(self, part: Awaitable[bytes]) -> bytes:
        """A part of a body, unless it comes too late. A dictionary and a sweep cost less than a timer per request."""
        task = asyncio.current_task()
        assert task is not None
        self._reading[task] = asyncio.get_running_loop().time() + self._body_timeout
        try:
            return await part
        except asyncio.CancelledError:
            if task not in self._late:
                raise
            self._late.discard(task)
            task.uncancel()
            raise _BodyLate from None
        finally:
            self._reading.pop(task, None)

    async def _chunks(self, exchange: Exchange) -> AsyncIterator[bytes]:
        """A body of unknown length. Its deadline holds for the whole, not for each chunk."""
        deadline = asyncio.get_running_loop().time() + self._body_timeout
        stream = aiter(exchange)
        ended = False
        while True:
            try:
                chunk = await self._in_time(anext(stream))
            except StopAsyncIteration:
                return
            if not chunk:
                # The server marks the end of a body by one empty chunk, and a connection that broke by two.
                if ended:
                    raise ProtocolClosed
                ended = True
            elif asyncio.get_running_loop().time() > deadline:
                raise _BodyLate
            else:
                yield chunk

    def _page(self, scope: Scope) -> Answer:
        page = self._pages.get(scope.path)
        if page is None:
            return answers.NOT_FOUND
        return page() if scope.method in ("GET", "HEAD") else _GET_ONLY

    def _ready(self) -> Answer:
        problem = self.readiness.problem
        return answers.READY if problem is None else answers.later("not_ready", problem)

    def _metrics(self) -> Answer:
        self.tally.save(self._tally_path)
        body = metrics.page(self._source, self._tally_path.parent)
        return Answer(HTTPStatus.OK, [("content-type", metrics.CONTENT_TYPE)], body)


class _BodyLate(Exception):
    """The body did not arrive in time."""


_POST_ONLY = answers.wrong_method("POST")
_GET_ONLY = answers.wrong_method("GET, HEAD")


def _record_headers(token_id: str, endpoint: str) -> _RecordHeaders:
    return ((str(Header.TOKEN), token_id), (str(Header.ENDPOINT), endpoint))


def _refusal(face: Face, grant: Grant | None) -> Answer | None:
    if grant is None:
        return answers.UNKNOWN_TOKEN
    if grant.server:
        return None if face.server_secret else answers.SERVER_TOKEN_IN_BROWSER
    return None if face.client_secret else answers.CLIENT_TOKEN_ON_SERVER_API


def _body_length(headers: Headers) -> int | None:
    """The announced length; 0 when the request has no body, None when only its end will tell."""
    length = headers.get("content-length")
    if length is not None:
        return int(length)
    return None if headers.get("transfer-encoding") is not None else 0
