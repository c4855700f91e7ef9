"""The endpoints of the collector: which path takes which shape of events, by which method, with which secret."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from penstock.sources.http import responses
from penstock.sources.http.access.auth_tokens import Grant
from penstock.sources.http.responses import Answer


class Shape(Enum):
    """How a request holds its events."""

    EVENTS = auto()
    """A JSON body: an object, an array, a template with events."""
    LINES = auto()
    """NDJSON, bare or as a file of a form."""
    MESSAGE = auto()
    """One of Segment's messages."""
    BATCH = auto()
    """Many of Segment's messages, with what they share."""
    PIXEL = auto()
    """The query of an image."""
    BUNDLES = auto()
    """JSON, an object or an array: bundles of state, or CloudEvents that are some."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint. ``name`` goes into the record's headers and the metrics."""

    name: str
    shape: Shape
    server_secret: bool = True
    client_secret: bool = True
    browser: bool = False
    """Whether web pages of other sites send here: it answers preflights, and its answers carry CORS headers."""
    message_type: str | None = None
    """The type of a Segment message that does not name its own."""

    method: str = "POST"

    @property
    def methods(self) -> str:
        """For the Allow header."""
        return f"{self.method}, OPTIONS" if self.browser else self.method

    @property
    def key_in_body(self) -> bool:
        """Whether the secret may also come as Segment's ``writeKey``."""
        return self.shape in (Shape.MESSAGE, Shape.BATCH)

    def is_api(self, grant: Grant) -> bool:
        """Whether events come from a program, not from a browser or an app; the secret decides where both may send."""
        return not self.browser or grant.server

    def refusal(self, grant: Grant | None) -> Answer | None:
        """Why this secret does not open this endpoint."""
        if grant is None:
            return responses.UNKNOWN_TOKEN
        if grant.server:
            return None if self.server_secret else responses.SERVER_TOKEN_IN_BROWSER
        return None if self.client_secret else responses.CLIENT_TOKEN_ON_SERVER_API


JS = Endpoint("js", Shape.EVENTS, server_secret=False, browser=True)
PIXEL = Endpoint("pixel", Shape.PIXEL, server_secret=False, browser=True, method="GET")
API = Endpoint("api", Shape.EVENTS, client_secret=False)
BULK = Endpoint("bulk", Shape.LINES)
BUNDLES = Endpoint("bundles", Shape.BUNDLES, client_secret=False)
BATCH = Endpoint("segment", Shape.BATCH, browser=True)
MESSAGES = {
    kind: Endpoint("segment", Shape.MESSAGE, browser=True, message_type=kind)
    for kind in ("track", "page", "identify", "group", "alias", "screen")
}

ENDPOINTS: dict[str, Endpoint] = {
    "/api/v1/event": JS,
    "/api/v1/events": JS,
    "/api/v1/p.gif": PIXEL,
    "/api/v1/s2s/event": API,
    "/api/v1/s2s/events": API,
    "/api/v1/events/bulk": BULK,
    "/api/v1/bundles": BUNDLES,
    "/v1/batch": BATCH,
    # Libraries for Java and Android use "import"; those for browsers and phones use first letters.
    "/v1/import": BATCH,
    "/v1/b": BATCH,
    **{f"/v1/{kind}": endpoint for kind, endpoint in MESSAGES.items()},
    **{f"/v1/{kind[0]}": endpoint for kind, endpoint in MESSAGES.items()},
}
