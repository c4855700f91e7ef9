"""A request on its way through the collector: its content, and its sender as far as known."""

from __future__ import annotations

from typing import Protocol

from penstock.sources.http.access.auth_tokens import Grant, Headers
from penstock.sources.http.access.endpoints import Endpoint


class Scope(Protocol):
    """What RSGI says of a request."""

    method: str
    path: str
    query_string: str
    client: str

    @property
    def headers(self) -> Headers: ...


class Request:
    """A request to a endpoint. ``grant`` and ``secret`` are set when the sender is known."""

    __slots__ = ("client", "endpoint", "grant", "headers", "key_in_body", "origin", "query", "secret")

    def __init__(self, endpoint: Endpoint, scope: Scope, minds_origins: bool) -> None:
        headers = scope.headers
        self.endpoint = endpoint
        self.client = scope.client
        self.query = scope.query_string
        self.headers = headers
        self.origin: str | None = headers.get("origin") if minds_origins else None
        """The web origin, if a page sends and any token restricts origins."""
        self.secret = ""
        self.key_in_body = False
        """Whether the secret came as Segment's ``writeKey``."""
        self.grant: Grant | None = None
