"""What the application of a worker does around every answer, whatever its requests carry.

A subclass says which endpoints there are and answers their requests. What is the same for all is here: the pages about
the worker itself, the counters, and that no request, however it ends, takes the worker with it.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Generic, Protocol, TypeVar

from granian.rsgi import ProtocolClosed  # type: ignore[attr-defined]  # imported there to be imported from there

from penstock.sources.http import responses
from penstock.sources.http.access.connections import Connections
from penstock.sources.http.body.body_reader import BodyReader, Incoming
from penstock.sources.http.config import ServerLimits
from penstock.sources.http.intake.log_intake import LogIntake
from penstock.sources.http.metrics import Tally
from penstock.sources.http.readiness import Readiness
from penstock.sources.http.request import Scope
from penstock.sources.http.responses import Answer, HeaderList

_log = logging.getLogger("penstock.http")


class Exchange(Incoming, Protocol):
    """RSGI's two-way end of a request: the body comes in, the answer goes out."""

    def response_bytes(self, status: int, headers: HeaderList, body: bytes) -> None: ...
    def response_empty(self, status: int, headers: HeaderList) -> None: ...


class Named(Protocol):
    """An endpoint, as far as it concerns the counters."""

    @property
    def name(self) -> str: ...


EndpointT = TypeVar("EndpointT", bound=Named)


class Application(ABC, Generic[EndpointT]):
    """The RSGI application of one worker. ``endpoints`` are by path; every other path is a page or 404."""

    endpoints: Mapping[str, EndpointT]
    not_found: ClassVar[Answer] = responses.NOT_FOUND
    intake: LogIntake
    """Made by the subclass: where the records of its requests go."""

    def __init__(self, limits: ServerLimits, tally: Tally, connections: Connections) -> None:
        self.connections = connections
        self.tally = tally
        self.readiness = Readiness(limits.disk_reserve)
        self.bodies = BodyReader(limits, tally)
        self.bodies.is_whole = connections.is_whole
        self.pages: dict[str, Callable[[], Answer]] = {"/healthz": lambda: responses.ALIVE, "/readyz": self._ready}

    @abstractmethod
    async def answer(self, endpoint: EndpointT, scope: Scope, exchange: Exchange) -> Answer:
        """The answer to a request; what it raises is a failure of ours, or a client that is gone."""

    def worded(self, refusal: Answer, scope: Scope) -> Answer:
        """A refusal in the form that the clients of this application expect."""
        return refusal

    async def open_other_ports(self) -> None:
        """Called when the worker owns its partition, before it listens."""

    async def close_other_ports(self) -> None:
        """Called when it no longer listens, before the log is closed."""

    async def __rsgi__(self, scope: Scope, exchange: Exchange) -> None:
        path = scope.path
        endpoint = self.endpoints.get(path)
        try:
            if endpoint is None:
                answer = self._page(scope)
                name = path if path in self.pages else "other"
            else:
                name = endpoint.name
                answer = await self.answer(endpoint, scope, exchange)
        except ProtocolClosed:
            # Most often the client is gone. One that is there, and whose body broke off, gets an answer.
            self.tally.count_request("gone" if endpoint is None else endpoint.name, 499)
            exchange.response_bytes(*self.worded(responses.BROKEN_OFF, scope))
            return
        except Exception:
            _log.exception("a request to %s failed", path)
            answer = self.worded(responses.closing(responses.FAILED), scope)
        self.tally.count_request(name, answer.status)
        if scope.method == "HEAD" or not answer.body:
            exchange.response_empty(answer.status, answer.headers)
        else:
            exchange.response_bytes(*answer)

    def check_ready(self) -> None:
        """Refuse a request, before its body is read, that could not be stored."""
        if self.intake.commits is None or self.readiness.stopping:
            raise responses.Refused(responses.closing(responses.NOT_READY))
        if self.readiness.disk_is_full:
            raise responses.Refused(responses.closing(responses.LOG_FULL))
        if (refusal := self.readiness.refusal) is not None:
            failing = responses.destination_failing(refusal.refuse, refusal.retry_after)
            raise responses.Refused(responses.closing(failing))

    def _page(self, scope: Scope) -> Answer:
        page = self.pages.get(scope.path)
        if page is None:
            return self.worded(self.not_found, scope)
        return page() if scope.method in ("GET", "HEAD") else _GET_ONLY

    def _ready(self) -> Answer:
        problem = self.readiness.problem
        return (
            responses.ready(self.readiness.engine) if problem is None else responses.retry_later("not_ready", problem)
        )


_GET_ONLY = responses.wrong_method("GET, HEAD")
