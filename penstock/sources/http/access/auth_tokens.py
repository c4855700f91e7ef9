"""Finds the owner of a secret in constant time, without ever keeping or showing the secret itself."""

from __future__ import annotations

import hmac
from base64 import b64decode
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol
from urllib.parse import unquote_plus

from penstock.sources.http.config import TokenConfig


@dataclass(frozen=True, slots=True)
class Grant:
    """What a presented secret allows: the token it belongs to, and whether it is the server secret."""

    token_id: str
    server: bool


class Headers(Protocol):
    """Request headers by lower-case name."""

    def get(self, key: str, /) -> str | None:
        """The value of the first line of this name."""

    def get_all(self, key: str, /) -> list[str]:
        """The values of all lines of this name, in order."""


class TokenTable:
    """Finds the grant of a secret. Compares every known secret, so that the time taken reveals nothing about them."""

    def __init__(self, tokens: Iterable[TokenConfig]) -> None:
        self._grants: list[tuple[bytes, Grant]] = []
        for token in tokens:
            for secret, server in ((token.client_secret, False), (token.server_secret, True)):
                if secret is not None:
                    self._grants.append((_digest(secret.get_secret_value()), Grant(token.id, server)))

    def grant(self, secret: str) -> Grant | None:
        presented = _digest(secret)
        found: Grant | None = None
        for known, grant in self._grants:
            if hmac.compare_digest(known, presented):
                found = grant
        return found


def presented_secret(query: str, headers: Headers) -> str | None:
    """The secret of a request: query ``token``, ``X-Auth-Token``, ``api_key``, the Basic auth user, in that order."""
    secret = query_secret(query) if query else None
    if secret is None:
        secret = headers.get("x-auth-token") or headers.get("api_key")
    if secret:
        return secret
    authorization = headers.get("authorization")
    return _basic_user(authorization) if authorization else None


def query_secret(query: str) -> str | None:
    for part in query.split("&"):
        if part.startswith("token=") and len(part) > 6:
            return unquote_plus(part[6:])
    return None


def _basic_user(authorization: str) -> str | None:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, _, _ = b64decode(encoded.strip(), validate=True).decode().partition(":")
    except ValueError:  # not base64, not ASCII, or not UTF-8 inside
        return None
    return user or None


def _digest(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()
