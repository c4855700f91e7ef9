"""From the bytes of an export request to its record in the log: unpacked, vouched for, and stored as they are.

HTTP and gRPC both come through here. Small requests are read by the event loop, larger ones beside it, in the lanes of
the collector; the largest one at a time, until the log has it.
"""

from __future__ import annotations

from functools import cache, partial
from http import HTTPStatus
from typing import NamedTuple

from penstock.log.group_commit import Entry
from penstock.otlp.json_requests import Signal
from penstock.record import Header
from penstock.sources.http import responses
from penstock.sources.http.body.body_events import BadBody, check_tokens
from penstock.sources.http.body.body_reader import BodyBudget
from penstock.sources.http.body.encodings import DamagedBody, TooLarge, UnknownEncoding, quickly_unpacked, unpacked
from penstock.sources.http.body.lanes import Lane
from penstock.sources.http.body.pace import QUICK_BYTES
from penstock.sources.http.intake.enrich import Clock
from penstock.sources.http.intake.log_intake import LogIntake
from penstock.sources.http.metrics import Tally
from penstock.sources.http.readiness import Readiness
from penstock.sources.http.responses import Refused
from penstock.sources.otlp.config import OtlpLimits
from penstock.sources.otlp.exports import BadExport, Export, MediaType, read_export
from penstock.sources.otlp.message_limit import TooManyMessages

AT_ONCE_BYTES = {MediaType.PROTOBUF: QUICK_BYTES, MediaType.JSON: 8192}
"""What the event loop reads itself, unpacked: a few milliseconds at most."""

_RecordHeaders = tuple[tuple[str, str], ...]


class Arrival(NamedTuple):
    """What is known of a request besides its body."""

    signal: Signal
    media_type: MediaType
    encoding: str
    """Its content encoding; empty if it has none."""
    endpoint: str
    """``http`` or ``grpc``."""
    token_id: str | None
    sender: str
    """The client's address: senders take turns by it."""


class ExportIntake(LogIntake):
    """Stores export requests. What it refuses, it refuses with ``Refused``, and then nothing was stored."""

    def __init__(self, limits: OtlpLimits, tally: Tally, readiness: Readiness, room: BodyBudget) -> None:
        super().__init__(tally, readiness)
        self._limits = limits
        self._room = room
        self._clock = Clock()
        self._soon = Lane("soon", limits.body_timeout)
        self._alone = Lane("alone", limits.body_timeout)
        self._headers_of = cache(_record_headers)
        self._too_many_messages = responses.refusal(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "too_many_messages",
            f"the request has more than {limits.body_messages} messages (spans, attributes and all others); nothing was"
            " stored; send it in smaller requests or raise `limits.body_messages`",
        )

    async def take(self, arrival: Arrival, received: bytes) -> Export:
        """Returns when the request is durable. Its bytes, as they were received, are charged and released by the
        caller."""
        try:
            return await self._take(arrival, received)
        except BadExport as error:
            raise Refused(responses.refusal(HTTPStatus.BAD_REQUEST, "bad_request", str(error))) from None
        except BadBody as error:
            raise Refused(responses.bad_body(error)) from None
        except TooManyMessages:
            raise Refused(self._too_many_messages) from None
        except TooLarge:
            raise Refused(responses.too_large(self._limits.body_bytes)) from None
        except (DamagedBody, UnknownEncoding) as error:
            raise Refused(responses.bad_encoding(str(error), known=isinstance(error, DamagedBody))) from None

    async def _take(self, arrival: Arrival, received: bytes) -> Export:
        micros, _ = self._clock.now()
        body = quickly_unpacked(received, arrival.encoding, min(QUICK_BYTES, self._limits.body_bytes))
        if body is None:
            return await self._take_alone(arrival, micros, received)
        if len(body) <= AT_ONCE_BYTES[arrival.media_type]:
            export = self._read(arrival, body)
        else:
            async with self._soon.turn(arrival.sender):
                export = await self._soon.run(partial(self._read, arrival, body))
        await self._store(arrival, micros, body, export)
        return export

    async def _take_alone(self, arrival: Arrival, micros: int, received: bytes) -> Export:
        lane, body, held = self._alone, received, 0
        async with lane.turn(arrival.sender):
            try:
                if arrival.encoding:
                    body = await lane.run(partial(unpacked, received, arrival.encoding, self._limits.body_bytes))
                    self._room.charge(len(body), large=True, mine=len(received))
                    held = len(body)
                export = await lane.run(partial(self._read, arrival, body))
                await self._store(arrival, micros, body, export)
            finally:
                self._room.release(held)
        return export

    def _read(self, arrival: Arrival, body: bytes) -> Export:
        """Safe in any thread."""
        if arrival.media_type is MediaType.JSON:
            check_tokens(body, self._limits)
        return read_export(arrival.signal, arrival.media_type, body, self._limits.body_messages)

    async def _store(self, arrival: Arrival, micros: int, body: bytes, export: Export) -> None:
        if export.empty:
            return
        headers = self._headers_of(arrival.media_type, arrival.endpoint, arrival.token_id)
        await self.append([Entry(micros, str(arrival.signal), None, headers, body)])
        self._tally.events += export.items - export.rejected
        self._tally.malformed += export.rejected


def _record_headers(media_type: MediaType, endpoint: str, token_id: str | None) -> _RecordHeaders:
    headers = ((str(Header.CONTENT_TYPE), str(media_type)), (str(Header.ENDPOINT), endpoint))
    return headers if token_id is None else (*headers, (str(Header.TOKEN), token_id))
