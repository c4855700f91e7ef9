"""From the events of a request to records in the log: adds context, submits them as one group, durable or refused.

All records of a request are submitted together, so a request is taken completely or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from penstock.log.group_commit import ENTRY_OVERHEAD, Entry
from penstock.record import Header
from penstock.sources.http import responses
from penstock.sources.http.access.client_address import ClientAddress
from penstock.sources.http.body.body_events import Event, Malformed
from penstock.sources.http.body.segment_messages import message_id
from penstock.sources.http.config import LARGEST_APPEND, HttpConfig
from penstock.sources.http.intake.enrich import Clock, Context, context, enriched
from penstock.sources.http.intake.log_intake import LogIntake
from penstock.sources.http.metrics import Tally
from penstock.sources.http.readiness import Readiness
from penstock.sources.http.request import Request
from penstock.sources.http.responses import Refused

if TYPE_CHECKING:
    # It loads the compiler, which only bundles need.
    from penstock.sources.http.body.bundles import SentBundle

USER_AGENT_LENGTH = 1024
MOST_REASONS = 10
"""So many malformed ones of a request are explained in its answer."""

_RecordHeaders = tuple[tuple[str, str], ...]


class Provenance(NamedTuple):
    """What the records of a request have in common: when, from whom, through which endpoint."""

    micros: int
    sender: str
    """The client's address."""
    headers: _RecordHeaders
    added: Context


class Prepared(NamedTuple):
    """The records of a request, ready for the log."""

    batch: list[Entry]
    malformed: int
    reasons: Sequence[str] = ()
    """Of the first malformed ones."""


class EventIntake(LogIntake):
    """Appends events to the log."""

    def __init__(self, config: HttpConfig, source: str, tally: Tally, readiness: Readiness) -> None:
        super().__init__(tally, readiness)
        self._namespace = config.namespace or source
        self._expose_secret = config.expose_secret
        self._address = ClientAddress(config.trusted_proxies).of
        self._clock = Clock()
        self._headers_of = cache(_record_headers)

    def provenance(self, request: Request) -> Provenance:
        """What the records of a request have in common."""
        endpoint, grant, headers = request.endpoint, request.grant, request.headers
        assert grant is not None
        api = endpoint.is_api(grant)
        micros, timestamp = self._clock.now()
        sender = self._address(request.client, headers)
        added = context(
            source_ip=sender,
            timestamp=timestamp,
            api_key=request.secret if self._expose_secret else grant.token_id,
            user_agent=None if api else (headers.get("user-agent") or "")[:USER_AGENT_LENGTH] or None,
            api=api,
        )
        return Provenance(micros, sender, self._headers_of(grant.token_id, endpoint.name), added)

    def prepare(
        self, found: Iterable[Event | SentBundle | Malformed], origin: Provenance, messages: bool = False
    ) -> Prepared:
        """The records of everything found. ``messages`` have their own kind of id. Safe in any thread. Raises
        ``Refused`` as soon as they are more than the log takes at once: each gets what the request says of its sender,
        which may be far more than the events themselves."""
        micros, _, headers, added = origin
        namespace = self._namespace
        batch: list[Entry] = []
        malformed = 0
        reasons: list[str] = []
        room = LARGEST_APPEND
        for item in found:
            if isinstance(item, Event):
                text, value = item
                own_id = message_id(item) if messages else None
                entry = Entry(micros, namespace, None, headers, enriched(text, value, added, own_id))
            elif not isinstance(item, Malformed):
                # State is no event: nothing is added to it.
                entry = Entry(micros, namespace, item.key, (*headers, *item.headers), item.data)
            else:
                malformed += 1
                if len(reasons) < MOST_REASONS:
                    reasons.append(item.reason)
                marked = (*headers, *item.headers, (str(Header.MALFORMED), item.reason))
                entry = Entry(micros, namespace, None, marked, item.raw)
            room -= len(entry.data) + ENTRY_OVERHEAD
            if room < 0:
                raise Refused(responses.too_large_with_context(LARGEST_APPEND))
            batch.append(entry)
        return Prepared(batch, malformed, reasons)

    async def commit(self, prepared: Prepared) -> None:
        """Append the records; returns when all are durable, or raises ``Refused``."""
        batch, malformed, _ = prepared
        if not batch:
            return
        await self.append(batch)
        self._tally.events += len(batch) - malformed
        self._tally.malformed += malformed


def _record_headers(token_id: str, endpoint: str) -> _RecordHeaders:
    return ((str(Header.TOKEN), token_id), (str(Header.ENDPOINT), endpoint))
