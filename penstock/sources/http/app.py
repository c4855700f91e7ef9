"""The collector's requests: from the socket to the log, and the answer back.

``Collector`` is an RSGI application for one worker. A request is: find the face by its path, find the token, read the
body within its limits, find the events in it, and hand them to the intake, which answers when the log has them. Every
module named here does one of these; what is in this one is their order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Protocol

from granian.rsgi import ProtocolClosed  # type: ignore[attr-defined]  # imported there to be imported from there

from penstock.sources.http import answers, metrics, openapi, pixel, segment
from penstock.sources.http.answers import Answer, HeaderList, Refused
from penstock.sources.http.bodies import BadBody, BodyLimits, events, lines
from penstock.sources.http.config import HttpConfig
from penstock.sources.http.cors import Cors
from penstock.sources.http.encodings import DamagedBody, TooLarge, UnknownEncoding, unpacked
from penstock.sources.http.faces import FACES, Face, Shape
from penstock.sources.http.intake import Intake
from penstock.sources.http.metrics import Tally
from penstock.sources.http.multipart import PIECE_BYTES, FileField, is_form
from penstock.sources.http.readiness import Readiness
from penstock.sources.http.reading import BodyReader, Incoming
from penstock.sources.http.request import Request, Scope
from penstock.sources.http.tokens import TokenTable, presented_secret, query_secret

__all__ = ["Collector", "Exchange", "Scope"]

_log = logging.getLogger("penstock.http")


class Exchange(Incoming, Protocol):
    """RSGI's two-way end of a request: the body comes in, the answer goes out."""

    def response_bytes(self, status: int, headers: HeaderList, body: bytes) -> None: ...
    def response_empty(self, status: int, headers: HeaderList) -> None: ...


class Collector:
    """The RSGI application of one worker."""

    def __init__(self, config: HttpConfig, source: str, tally: Tally, tally_path: Path) -> None:
        limits = config.limits
        self.readiness = Readiness()
        self.tally = tally
        self.intake = Intake(config, source, tally, self.readiness)
        self.bodies = BodyReader(limits, tally)
        self._tally_path = tally_path
        self._source = source
        self._tokens = TokenTable(config.tokens)
        self._cors = Cors(config.tokens)
        self._disk_reserve = limits.disk_reserve
        self._limits = BodyLimits(limits.event_bytes, limits.body_bytes, limits.body_events)
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
                answer = await self._answer(face, scope, exchange)
        except ProtocolClosed:
            self.tally.request("gone" if face is None else face.name, 499)
            return
        except Exception:
            _log.exception("a request to %s failed", path)
            answer = answers.closing(answers.FAILED)
        self.tally.request(name, answer.status)
        if scope.method == "HEAD" or not answer.body:
            exchange.response_empty(answer.status, answer.headers)
        else:
            exchange.response_bytes(*answer)

    async def _answer(self, face: Face, scope: Scope, exchange: Exchange) -> Answer:
        request = Request(face, scope, self._cors.active)
        if scope.method != face.method:
            return self._preflight(request) if scope.method == "OPTIONS" else answers.wrong_method(face.methods)
        try:
            answer = await self._take(request, exchange)
        except Refused as refused:
            answer = refused.answer
        except BadBody as error:
            answer = answers.bad_body(error)
        except TooLarge:
            answer = answers.too_large(self._limits.body_bytes)
        except (DamagedBody, UnknownEncoding) as error:
            answer = answers.bad_encoding(str(error), known=isinstance(error, DamagedBody))
        if request.origin is not None and face.browser:
            return self._cors.shared(answer, request.grant, request.origin)
        return answer

    def _preflight(self, request: Request) -> Answer:
        face = request.face
        if not face.browser:
            return answers.wrong_method(face.methods)
        secret = query_secret(request.query)
        grant = self._tokens.grant(secret) if secret is not None else None
        usable = secret is None or face.refusal(grant) is None
        return self._cors.preflight(grant, request.origin if usable else None, face.methods)

    async def _take(self, request: Request, exchange: Exchange) -> Answer:
        face, headers = request.face, request.headers
        secret = presented_secret(request.query, headers)
        if secret is not None or not face.key_in_body:
            self._admit(request, secret)
        if self.intake.commits is None or self.readiness.stopping:
            return answers.closing(answers.NOT_READY)
        if self.readiness.disk_free < self._disk_reserve:
            return answers.closing(answers.LOG_FULL)
        if face.shape is Shape.PIXEL:
            await self.intake.take([pixel.event(request.query, self._limits)], request)
            return pixel.TRANSPARENT
        received = await self.bodies.read(headers, exchange)
        try:
            encoding = headers.get("content-encoding")
            body = unpacked(received, encoding, self._limits.body_bytes) if encoding else received
            if face.shape is Shape.EVENTS:
                found = events(body, self._limits)
                await self.intake.take(found, request)
                return answers.accepted(len(found))
            if face.shape is Shape.LINES:
                return await self._take_lines(request, body)
            return await self._take_messages(request, body)
        finally:
            self.bodies.release(received)

    def _admit(self, request: Request, secret: str | None) -> None:
        """Know the sender by its secret, or refuse it."""
        if secret is None:
            raise Refused(answers.NO_TOKEN)
        grant = self._tokens.grant(secret)
        refusal = request.face.refusal(grant)
        if refusal is not None:
            raise Refused(refusal)
        request.secret, request.grant = secret, grant
        if request.origin is not None and grant is not None and self._cors.forbids(grant, request.origin):
            raise Refused(answers.FOREIGN_ORIGIN)

    async def _take_lines(self, request: Request, body: bytes) -> Answer:
        content_type = request.headers.get("content-type")
        if content_type is not None and is_form(content_type):
            body = await _file_of_form(content_type, body)
        taken, malformed = await self.intake.take_lines(lines(body, self._limits), request)
        return answers.accepted_lines(taken, malformed)

    async def _take_messages(self, request: Request, body: bytes) -> Answer:
        call = segment.call(body)
        if request.grant is None:
            self._admit(request, call.write_key)
        messages = segment.messages(call, request.face.message_type, self._limits)
        await self.intake.take_messages(messages, request)
        return answers.accepted(len(messages))

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


async def _file_of_form(content_type: str, body: bytes) -> bytes:
    form = FileField(content_type)
    for start in range(0, len(body), PIECE_BYTES):
        form.write(body[start : start + PIECE_BYTES])
        await asyncio.sleep(0)
    return form.content()


_GET_ONLY = answers.wrong_method("GET, HEAD")
