"""The collector's requests: from the socket to the log, and the answer back.

``Collector`` is an RSGI application for one worker. A request is: find the endpoint by its path, find the token, read
the body within its limits, find the events in it, and hand them to the intake, which answers when the log has them.
Every module named here does one of these; what is in this one is their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from penstock.sources.http import responses
from penstock.sources.http.access.auth_tokens import Headers, TokenTable, presented_secret, query_secret
from penstock.sources.http.access.client_address import ClientAddress
from penstock.sources.http.access.connections import Connections
from penstock.sources.http.access.cors import Cors
from penstock.sources.http.access.endpoints import ENDPOINTS, Endpoint, Shape
from penstock.sources.http.access.key_searches import KeySearches
from penstock.sources.http.application import Application, Exchange
from penstock.sources.http.body import pixel, segment_messages
from penstock.sources.http.body.body_events import BadBody, Malformed, events, lines
from penstock.sources.http.body.encodings import (
    DamagedBody,
    TooLarge,
    UnknownEncoding,
    quickly_unpacked,
    unpacked,
    unpacked_start,
)
from penstock.sources.http.body.lanes import Lane
from penstock.sources.http.body.multipart import file_of_form, is_form
from penstock.sources.http.body.pace import QUICK_BYTES, QUICK_QUERY, TINY_BYTES, Pace, pace
from penstock.sources.http.config import HttpConfig
from penstock.sources.http.intake.event_intake import EventIntake, Prepared, Provenance
from penstock.sources.http.metrics import Tally
from penstock.sources.http.openapi import description
from penstock.sources.http.request import Request, Scope
from penstock.sources.http.responses import Answer, Refused

if TYPE_CHECKING:
    from penstock.sources.http.body.bundles import SentBundle

__all__ = ["Collector", "Exchange", "Scope"]


class Collector(Application[Endpoint]):
    endpoints = ENDPOINTS
    intake: EventIntake

    def __init__(self, config: HttpConfig, source: str, tally: Tally, connections: Connections) -> None:
        limits = config.limits
        super().__init__(limits, tally, connections)
        self.intake = EventIntake(config, source, tally, self.readiness)
        self._tokens = TokenTable(config.tokens)
        self._own_sources = {token.id: token.source for token in config.tokens if token.source is not None}
        self._cors = Cors(config.tokens)
        self._limits = limits
        self._addresses = ClientAddress(config.trusted_proxies)
        self._key_searches = KeySearches(self._addresses.is_trusted)
        self._keys = Lane("keys", limits.body_timeout)
        self._soon = Lane("soon", limits.body_timeout)
        # Nobody else waits for the compiler, which the first bundle loads.
        self._bundles = Lane("bundles", limits.body_timeout)
        self._alone = Lane("alone", limits.body_timeout)
        self.pages["/openapi.json"] = description.answer

    async def answer(self, endpoint: Endpoint, scope: Scope, exchange: Exchange) -> Answer:
        request = Request(endpoint, scope, self._cors.active)
        if scope.method != endpoint.method:
            return self._preflight(request) if scope.method == "OPTIONS" else responses.wrong_method(endpoint.methods)
        try:
            answer = await self._take(request, exchange)
        except Refused as refused:
            answer = refused.answer
        except BadBody as error:
            answer = responses.bad_body(error)
        except TooLarge:
            answer = responses.too_large(self._limits.body_bytes)
        except (DamagedBody, UnknownEncoding) as error:
            answer = responses.bad_encoding(str(error), known=isinstance(error, DamagedBody))
        if request.origin is not None and endpoint.browser:
            return self._cors.shared(answer, request.grant, request.origin)
        return answer

    def _preflight(self, request: Request) -> Answer:
        endpoint = request.endpoint
        if not endpoint.browser:
            return responses.wrong_method(endpoint.methods)
        secret = query_secret(request.query)
        grant = self._tokens.grant(secret) if secret is not None else None
        usable = secret is None or endpoint.refusal(grant) is None
        return self._cors.preflight(grant, request.origin if usable else None, endpoint.methods)

    async def _take(self, request: Request, exchange: Exchange) -> Answer:
        endpoint, headers = request.endpoint, request.headers
        secret = presented_secret(request.query, headers)
        key_in_body = secret is None and endpoint.key_in_body
        if not key_in_body:
            self._admit(request, secret)
        self.check_ready()
        if endpoint.shape is Shape.PIXEL:
            await self._take_pixel(request)
            return pixel.TRANSPARENT
        if key_in_body:
            received = await self._read_and_admit(request, exchange)
        else:
            received = await self.bodies.read(headers, exchange, request.client)
        try:
            if (
                endpoint.shape is Shape.EVENTS
                and len(received) <= TINY_BYTES
                and headers.get("content-encoding") is None
            ):
                # Most requests by far; the rest is for the others.
                taken = self.intake.prepare(events(received, self._limits), self.intake.provenance(request))
                await self.intake.commit(taken)
            else:
                taken = await self._take_body(request, received)
        finally:
            self.bodies.room.release(len(received))
        if endpoint.shape is Shape.LINES:
            return responses.accepted_lines(len(taken.batch) - taken.malformed, taken.malformed)
        if endpoint.shape is Shape.BUNDLES:
            return responses.accepted_bundles(len(taken.batch) - taken.malformed, taken.malformed, taken.reasons)
        return responses.accepted(len(taken.batch))

    async def _take_pixel(self, request: Request) -> None:
        origin, query = self.intake.provenance(request), request.query

        def prepare() -> Prepared:
            return self.intake.prepare([pixel.event(query, self._limits)], origin)

        if len(query) <= QUICK_QUERY:
            prepared = prepare()
        else:
            async with self._soon.turn(origin.sender):
                prepared = await self._soon.run(prepare)
        await self.intake.commit(prepared)

    async def _take_body(self, request: Request, received: bytes) -> Prepared:
        """Find the events and append them to the log, in the lane that the body needs."""
        origin = self.intake.provenance(request)
        content_type = request.headers.get("content-type") if request.endpoint.shape is Shape.LINES else None
        form = content_type if content_type is not None and is_form(content_type) else None
        encoding = _encoding(request.headers)
        body = quickly_unpacked(received, encoding, QUICK_BYTES) if encoding else received
        chosen = Pace.ALONE if body is None else pace(request.endpoint.shape, body, form is not None)
        if chosen is Pace.ALONE:
            return await self._take_alone(request, received, encoding, form, origin)
        assert body is not None
        if chosen is Pace.SOON:
            lane = self._bundles if request.endpoint.shape is Shape.BUNDLES else self._soon
            async with lane.turn(origin.sender):
                prepared = await lane.run(partial(self._prepared, request, body, form, origin))
        else:
            prepared = self._prepared(request, body, form, origin)
        await self.intake.commit(prepared)
        return prepared

    async def _take_alone(
        self, request: Request, received: bytes, encoding: str, form: str | None, origin: Provenance
    ) -> Prepared:
        """For the largest bodies: the turn ends when the log has all of it, so only one is in memory at a time."""
        lane, room, held = self._alone, self.bodies.room, 0
        async with lane.turn(origin.sender):
            body = received
            try:
                if encoding:
                    body = await lane.run(partial(unpacked, received, encoding, self._limits.body_bytes))
                    room.charge(len(body), large=True, mine=len(received))
                    held = len(body)
                prepared = await lane.run(partial(self._prepared, request, body, form, origin))
            finally:
                del body
                room.release(held)
            await self.intake.commit(prepared)
        return prepared

    def _prepared(self, request: Request, body: bytes, form: str | None, origin: Provenance) -> Prepared:
        """The records of a body. Safe in any thread."""
        shape, limits = request.endpoint.shape, self._limits
        if shape is Shape.EVENTS:
            return self.intake.prepare(events(body, limits), origin)
        if shape is Shape.LINES:
            return self.intake.prepare(lines(body if form is None else file_of_form(form, body), limits), origin)
        if shape is Shape.BUNDLES:
            return self.intake.prepare(self._checked_bundles(request, body), origin)
        call = segment_messages.Call(body, request.endpoint.message_type, limits)
        return self.intake.prepare(call.messages(partial(_check_key, request)), origin, messages=True)

    def _checked_bundles(self, request: Request, body: bytes) -> Iterator[SentBundle | Malformed]:
        from penstock.sources.http.body.bundles import check_bundles
        from penstock.sources.http.body.cloud_events import find_in_request  # load the compiler, for who needs it

        assert request.grant is not None
        found = find_in_request(request.headers, body, self._limits)
        return check_bundles(found, self._own_sources.get(request.grant.token_id))

    def _admit(self, request: Request, secret: str | None) -> None:
        """Identify the sender by its secret, or refuse it."""
        if secret is None:
            raise Refused(responses.NO_TOKEN)
        grant = self._tokens.grant(secret)
        refusal = request.endpoint.refusal(grant)
        if refusal is not None:
            raise Refused(refusal)
        request.secret, request.grant = secret, grant
        self.connections.mark_known(request.client)
        if request.origin is not None and grant is not None and self._cors.forbids(grant, request.origin):
            raise Refused(responses.FOREIGN_ORIGIN)

    async def _read_and_admit(self, request: Request, exchange: Exchange) -> bytes:
        """Read the body of a sender whose secret is only in it: finds it near the start, before reading the rest."""
        sender = self._addresses.of(request.client, request.headers)
        self._key_searches.spend(sender)
        try:
            return await self._read_with_key(request, exchange, sender)
        except Refused:
            if request.grant is None and (seconds := self._key_searches.wait_after_bad_key(sender)):
                await asyncio.sleep(seconds)
            raise

    async def _read_with_key(self, request: Request, exchange: Exchange, sender: str) -> bytes:
        body = self.bodies.open(request.headers, exchange, request.client)
        try:
            start = await body.prefix(segment_messages.KEY_PREFIX_BYTES)
            key = await self._key_near(start, _encoding(request.headers), sender)
            if key is None and not body.complete:
                raise Refused(responses.closing(responses.NO_KEY_NEARBY))
            self._admit(request, key)
            self._key_searches.mark_good(sender)
            body.known = request.key_in_body = True
            return await body.rest()
        finally:
            body.close()

    async def _key_near(self, start: bytes, encoding: str, sender: str) -> str | None:
        """The key in the first bytes of a body, as they came."""
        if not encoding and len(start) <= TINY_BYTES:
            return segment_messages.key_in(start)
        with self._key_searches.waiting(sender):
            async with self._keys.turn(sender):
                return await self._keys.run(partial(_unpack_and_find_key, start, encoding))


def _check_key(request: Request, key: str | None) -> None:
    """Refuse a body that has one key near its start and another one later."""
    if request.key_in_body and key != request.secret:
        raise Refused(responses.UNKNOWN_TOKEN)


def _encoding(headers: Headers) -> str:
    """The body's content encoding; several header lines are one list."""
    return ",".join(headers.get_all("content-encoding")) if headers.get("content-encoding") is not None else ""


def _unpack_and_find_key(start: bytes, encoding: str) -> str | None:
    return segment_messages.key_in(unpacked_start(start, encoding, segment_messages.KEY_PREFIX_BYTES))
